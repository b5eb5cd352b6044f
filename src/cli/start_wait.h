// A request to stop that comes before the first step: heard by all ranks, wherever the start just is.
#pragma once

#include <functional>
#include <string>

#include "trainctl/comm/host_channel.h"
#include "trainctl/train/stop_flag.h"

namespace trainctl {

// Collective: whether any rank was asked to stop.
bool asked_to_stop(HostChannel& control, const StopFlag& stop);

// Collective. Rank 0 does `work`, which may wait for long and then asks, at every poll, whether any rank was
// asked to stop; meanwhile the others answer these questions. Every rank gets the answer of `work`; its Error
// is everybody's (Scope::Shared).
std::string wait_at_rank_0(HostChannel& control, const StopFlag& stop,
                           const std::function<std::string(const std::function<bool()>& asked)>& work);

}  // namespace trainctl
