// How much room a job's checkpoints still need.
#pragma once

#include "trainctl/base/file_system.h"
#include "trainctl/checkpoint/space.h"
#include "trainctl/config/job_spec.h"

namespace trainctl {

// Looks at what the run has saved already; changes nothing.
SpaceNeed checkpoint_space(FileSystem& files, const JobSpec& job, std::int64_t ranks);

}  // namespace trainctl
