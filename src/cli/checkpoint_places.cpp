#include "cli/checkpoint_places.h"

namespace trainctl {

RunLayout run_layout(const JobSpec& job) {
    return RunLayout(job.run_dir, checkpoint_places(job).front().root);
}

std::vector<Place> checkpoint_places(const JobSpec& job) {
    return checkpoint_places(job.run_dir, job.checkpoint);
}

}  // namespace trainctl
