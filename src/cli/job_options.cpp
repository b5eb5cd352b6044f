#include "cli/job_options.h"

#include "trainctl/config/load.h"

namespace trainctl {

JobSpec load_job_or_fail(FileSystem& files, const JobOptions& options,
                         std::optional<std::int64_t> world_size) {
    return job_or_fail(load_job(files, options.path, {options.set, world_size}));
}

}  // namespace trainctl
