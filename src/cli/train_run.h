// One attempt of a run on one rank: run directory, data, training, checkpoints, loop.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/rank_main.h"
#include "trainctl/checkpoint/resume.h"
#include "trainctl/config/job_spec.h"
#include "trainctl/train/profile.h"

namespace trainctl {

struct TrainOptions {
    ResumeRequest resume;
    std::vector<std::string> allowed_changes;  // --allow-change
    std::optional<ProfileSteps> profile;       // --profile
};

// Collective over the ranks of the world.
Exit train_run(RankContext& context, const JobSpec& job, const TrainOptions& options);

}  // namespace trainctl
