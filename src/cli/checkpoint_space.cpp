#include "cli/checkpoint_space.h"

#include "cli/checkpoint_places.h"
#include "trainctl/config/model_math.h"
#include "trainctl/rundir/run_identity.h"

namespace trainctl {

SpaceNeed checkpoint_space(FileSystem& files, const JobSpec& job, std::int64_t ranks) {
    SpaceNeed need;
    need.bytes_per_checkpoint = predicted_bytes(parameter_count(job.model), ranks);
    need.files_per_checkpoint = static_cast<std::uint64_t>(ranks) + 2;  // MANIFEST and COMMIT
    need.keep_latest = job.checkpoint.keep_latest;
    const RunLayout layout = run_layout(job);
    if (const auto identity = read_run_identity(files, layout)) {
        need.present = replaceable_checkpoints(files, layout.checkpoints(), identity->run_id,
                                               {job.checkpoint.keep_latest, job.checkpoint.keep_every},
                                               Lineage(read_journal(files, layout)));
    }
    return need;
}

}  // namespace trainctl
