// What a new training begins with: a random draw, or the weights of another run (model.init_from).
#pragma once

#include "cli/rank_main.h"
#include "cli/run_directory.h"
#include "trainctl/checkpoint/weight_source.h"
#include "trainctl/config/job_spec.h"
#include "trainctl/train/run_checkpoints.h"
#include "trainctl/train/training.h"

namespace trainctl {

// What model.init_from names. Exit::BadInput: no complete checkpoint; Exit::Usage: of another model.
WeightSource find_initial_weights(FileSystem& files, const JobSpec& job);

// Collective. `directory` at rank 0, whose journal and record say where the weights are from. The same Error
// on all ranks.
void set_initial_weights(RankContext& context, const JobSpec& job, Training& training,
                         RunCheckpoints& checkpoints, RunDirectory* directory);

}  // namespace trainctl
