// A job as text. Both forms hold every key that has a value; load_job_text(to_toml(job)) gives the same job
// back, to the last bit (job.steps is left out where it follows from job.tokens).
#pragma once

#include <map>
#include <string>

#include "trainctl/config/job_spec.h"
#include "trainctl/config/load.h"

namespace trainctl {

// Sections and keys in the order of the registry.
std::string to_toml(const JobSpec& job);
// The same with a comment behind every value that says where it came from.
std::string to_toml(const JobSpec& job, const std::map<std::string, Origin, std::less<>>& origins);

// One object per section, nested like the TOML tables; "auto" and durations as in TOML. Ends with a newline.
std::string to_json(const JobSpec& job);

}  // namespace trainctl
