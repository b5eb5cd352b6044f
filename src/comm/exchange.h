// Byte strings between the members of a communicator: what barriers, splits and host messages are made of.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/core.h"
#include "trainctl/comm/rank_link.h"
#include "trainctl/device/host_stream.h"

namespace trainctl {

enum class ExchangePattern {
    All,       // everybody's string everywhere
    ToRoot,    // everybody's string at rank 0
    FromRoot,  // rank 0's string everywhere
    Pairs,     // mine to one rank, another's here
};

struct ExchangeRoute {
    ExchangePattern pattern = ExchangePattern::All;
    int to = RankLink::nobody;  // of Pairs
    int from = RankLink::nobody;
};

// The stream that a world's host messages and splits run on, and what a blocked host does about failure.
// Shared by the world and its communicators.
struct ControlLine {
    CpuDevice& device;
    std::unique_ptr<Stream> stream;

    ControlLine(CpuDevice& owner, StreamRole role)
        : device(owner), stream(owner.make_stream("control", role)) {}

    // Runs the operation and blocks the host until it is done.
    void run(std::unique_ptr<Operation> operation);
    // Blocks until all strings have arrived; by rank, own included; "" where the pattern brings none.
    std::vector<std::string> exchange(const std::shared_ptr<CommCore>& core, const char* what,
                                      unsigned sequence, ExchangeRoute route, const std::string& mine);
};

}  // namespace trainctl
