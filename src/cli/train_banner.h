// What a run says before its first step.
#pragma once

#include <string>

#include "trainctl/train/training.h"

namespace trainctl {

// World and mesh, model, batch, precision, device, memory table, data, how to stop.
// Rank 0.
std::string start_banner(const JobSpec& job, const Rank& rank, const Training& training,
                         const std::string& data, double peak_flops_per_s);

// The plan against what the device's allocator counted, once everything has been used.
std::string memory_verdict(const Training& training, std::uint64_t allocated);

}  // namespace trainctl
