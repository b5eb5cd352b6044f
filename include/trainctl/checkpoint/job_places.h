// The places that a job names for its checkpoints.
#pragma once

#include <string>
#include <vector>

#include "trainctl/checkpoint/place.h"
#include "trainctl/config/job_spec.h"

namespace trainctl {

// All tiers of a job that passed its checks: the one that saves go to, then those that get copies.
std::vector<Place> checkpoint_places(const std::string& run_dir, const CheckpointSpec& checkpoint);

}  // namespace trainctl
