// The copies that a training makes of its checkpoints.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/rank_main.h"
#include "trainctl/checkpoint/checkpoint_store.h"
#include "trainctl/train/tier_copies.h"

namespace trainctl {

// Ranks on hosts of one name share their disks.
Nodes nodes_of(const std::vector<std::string>& hosts);

// Collective. nullptr: the job has one place for its checkpoints. `store`: of this rank, must outlive it.
std::unique_ptr<TierCopies> make_copies(RankContext& context, const JobSpec& job, const Nodes& nodes,
                                        const CheckpointStore& store, const std::string& run_id,
                                        std::function<void()> fence);

}  // namespace trainctl
