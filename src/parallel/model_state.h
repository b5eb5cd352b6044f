// Master weights and moments by name: initial values, and the slices that checkpoints save and load.
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/model_memory.h"
#include "trainctl/model/named_slice.h"
#include "trainctl/ops/ops.h"

namespace trainctl {

// Initial masters of what this rank holds, computed on the host and copied; moments 0. Start-up only: waits.
void set_initial_state(const ShardPlan& plan, const ModelMemory& memory, Device& device, Ops ops,
                       Stream& stream, std::uint64_t seed);

// Owned: this rank's part of every primary tensor's states, so that over all ranks each element is named
// once. Held: everything that this rank keeps. The two differ in stage 0 only.
enum class Share : std::uint8_t { Owned, Held };

// "<name>", "<name>.m", "<name>.v" in logical shapes; one slice per parameter and state that has elements
// here.
std::vector<NamedSlice> named_slices(const ShardPlan& plan, const ModelMemory& memory, Share share);

}  // namespace trainctl
