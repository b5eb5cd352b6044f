// A job file with overrides, as several commands take it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainctl/base/file_system.h"
#include "trainctl/config/job_spec.h"

namespace trainctl {

struct JobOptions {
    std::string path;
    std::vector<std::string> set;  // "key=value"
};

// The resolved job, or Error(Exit::Usage) with every problem of the file.
JobSpec load_job_or_fail(FileSystem& files, const JobOptions& options,
                         std::optional<std::int64_t> world_size);

}  // namespace trainctl
