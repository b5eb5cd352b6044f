// The Communicator of ranks that are host code: collectives as operations over any Transport.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "comm/core.h"
#include "comm/exchange.h"
#include "trainctl/comm/communicator.h"
#include "trainctl/comm/host_channel.h"

namespace trainctl {

// What all communicators of one world share.
struct WorldLine {
    ControlLine control;
    std::function<void(const std::string& reason)> abort;  // any thread

    explicit WorldLine(CpuDevice& device, StreamRole role = StreamRole::Communication)
        : control(device, role) {}
};

std::unique_ptr<Communicator> make_host_communicator(std::shared_ptr<WorldLine> line,
                                                     std::shared_ptr<CommCore> core);

// Of World::make_background_channel.
WorldOptions background_options(WorldOptions options);

// `core` should be used for nothing else.
std::unique_ptr<HostChannel> make_host_channel(std::shared_ptr<WorldLine> line,
                                               std::shared_ptr<CommCore> core);

}  // namespace trainctl
