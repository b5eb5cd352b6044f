// The start of an attempt at its run directory: everything that can be refused is refused before anything is
// created and before anything long; then the lease.
#pragma once

#include <memory>
#include <string>

#include "cli/rank_main.h"
#include "cli/run_directory.h"
#include "cli/train_run.h"
#include "trainctl/checkpoint/space.h"

namespace trainctl {

// What rank 0 tells the others about the run directory.
struct SharedRun {
    std::string run_id;
    int attempt = 0;
    RunState state = RunState::New;
};

// Collective; `directory` is filled at rank 0. All ranks throw alike: Exit::Usage, BadInput or Resource for
// what this job may not do there; Exit::Fenced naming the owner of a run that is going on; Exit::Interrupted
// if a stop was asked for while waiting for one that is silent.
SharedRun open_run(RankContext& context, const JobSpec& job, const TrainOptions& options,
                   const std::string& data_id, std::unique_ptr<RunDirectory>& directory);

// The job stored with the checkpoint against the one that wants to go on: refuses by name what may not
// change, other training data, and fewer steps than were done. Exit::Usage, Exit::BadInput.
void require_same_run(const Manifest& stored, const JobSpec& job, const std::string& data_id,
                      const std::vector<std::string>& allowed_changes);

}  // namespace trainctl
