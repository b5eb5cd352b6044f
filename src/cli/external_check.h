// What `config check` can only know by looking at the machine: data, vocabulary, disk space.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "trainctl/base/file_system.h"
#include "trainctl/config/job_spec.h"
#include "trainctl/config/problem.h"

namespace trainctl {

// Never throws for what it finds. Data files that are not on this machine are Severity::Unchecked.
std::vector<Problem> external_problems(FileSystem& files, const JobSpec& job,
                                       std::optional<std::int64_t> ranks);

}  // namespace trainctl
