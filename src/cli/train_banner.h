// What a run says before its first step.
#pragma once

#include <string>
#include <vector>

#include "trainctl/train/device_peak.h"
#include "trainctl/train/training.h"

namespace trainctl {

// Memory tables of one rank of every pipeline stage, on rank 0. Collective.
std::vector<std::vector<MemoryRow>> memory_by_stage(RankLink& link, const Rank& rank,
                                                    const Training& training);

// "host / ranks with their (data, tensor, pipeline) coordinates", a line per host; of many hosts and ranks
// the first ones. Empty for one rank.
std::string rank_map(const std::vector<std::string>& hosts, MeshShape shape);

// World and mesh, model, batch, precision, device, memory table, data, how to stop.
// Rank 0. `hosts` by rank.
std::string start_banner(const JobSpec& job, const Rank& rank, const Training& training,
                         const std::vector<std::string>& hosts,
                         const std::vector<std::vector<MemoryRow>>& memory, const std::string& data,
                         const DevicePeak& peak);

// The plans of all ranks against what their devices' allocators counted, once everything has been used.
// Collective; for rank 0 to say.
std::string memory_verdict(RankLink& link, const Training& training, std::uint64_t allocated);

}  // namespace trainctl
