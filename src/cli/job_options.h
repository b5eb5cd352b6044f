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

// The same for a command that asks for data-parallel ranks, the readers of the data, and not for the world:
// fills them in where they are not given, with the job's own number, else 1.
JobSpec load_job_of_readers(FileSystem& files, const JobOptions& options,
                            std::optional<std::int64_t>& data_ranks);

}  // namespace trainctl
