#include "cli/job_options.h"

#include <algorithm>

#include "trainctl/config/load.h"

namespace trainctl {

JobSpec load_job_or_fail(FileSystem& files, const JobOptions& options,
                         std::optional<std::int64_t> world_size) {
    return job_or_fail(load_job(files, options.path, {options.set, world_size}));
}

JobSpec load_job_of_readers(FileSystem& files, const JobOptions& options,
                            std::optional<std::int64_t>& data_ranks) {
    const ParallelSpec parallel = load_job(files, options.path, {options.set, {}}).spec.parallel;
    if (!data_ranks) data_ranks = std::max<std::int64_t>(parallel.data_parallel_size, 1);
    return load_job_or_fail(files, options,
                            *data_ranks * parallel.tensor_parallel_size * parallel.pipeline_parallel_size);
}

}  // namespace trainctl
