// The frame around everything that runs on ranks: signals, device, world, and one message when something
// fails.
#pragma once

#include <functional>
#include <optional>

#include "cli/command.h"
#include "trainctl/base/error.h"
#include "trainctl/base/log.h"
#include "trainctl/config/job_spec.h"
#include "trainctl/config/port_range.h"
#include "trainctl/train/stop_flag.h"
#include "trainctl/train/training.h"

namespace trainctl {

// What a rank's body works with.
struct RankContext {
    Invocation& invocation;
    CpuDevice& device;
    World& world;
    StopFlag& stop;
    Log& log;
};

struct RankSettings {
    DeviceSpec device;
    CommunicationSpec communication;
    std::optional<PortRange> ports;  // of MPI; nullopt: any
};

// Starts this process as one rank and runs `body`. An Error that leaves body ends all ranks within seconds;
// the user sees one message, with the failing rank and its host in front.
Exit rank_main(Invocation& invocation, const RankSettings& settings,
               const std::function<Exit(RankContext&)>& body);

// For a rank that cannot unwind, because a thread of it waits for something that may never come: says `error`
// as rank_main would, and ends all ranks and this process.
[[noreturn]] void leave_now(RankContext& context, const Error& error);

}  // namespace trainctl
