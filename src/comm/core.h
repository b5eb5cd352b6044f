// What a communicator shares with its operations, which may outlive it.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "comm/transport.h"
#include "trainctl/comm/world.h"

namespace trainctl {

struct CommCore {
    std::string name;
    std::unique_ptr<Transport> transport;
    std::vector<int> world_ranks;  // of the members, for messages to people
    std::shared_ptr<const std::vector<std::string>>
        hosts;  // by world rank; may be shorter while the world forms
    WorldOptions options;
    std::atomic<bool> given_up{false};  // operations that are under way here end with Exit::Peer; any thread

    // "rank 3 (node07)"
    [[nodiscard]] std::string describe(int member) const;
};

}  // namespace trainctl
