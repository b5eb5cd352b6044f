// Where a job's checkpoints go.
#pragma once

#include <vector>

#include "trainctl/checkpoint/job_places.h"
#include "trainctl/config/job_spec.h"
#include "trainctl/rundir/layout.h"

namespace trainctl {

// The run directory, with checkpoints() as the place that saves go to.
RunLayout run_layout(const JobSpec& job);

std::vector<Place> checkpoint_places(const JobSpec& job);

}  // namespace trainctl
