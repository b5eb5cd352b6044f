#include "cli/run_places.h"

#include <fmt/format.h>

#include "cli/checkpoint_places.h"
#include "trainctl/base/error.h"
#include "trainctl/rundir/layout.h"

namespace trainctl {

std::vector<UnusablePlace> unusable_places(FileSystem& files, const JobSpec& job) {
    const RunLayout layout = run_layout(job);
    // The longest path comes last: a run_dir may be short enough where what lies in it is not.
    const std::string checkpoint =
        join_path(layout.checkpoints(), checkpoint_directory_name({job.steps, 1, 0}));
    const std::string checkpoint_key =
        job.checkpoint.directory.empty() ? "job.run_dir" : "checkpoint.directory";
    std::vector<UnusablePlace> found;
    const auto look = [&](const std::string& key, const std::string& path) {
        if (!found.empty() && found.back().key == key) return;
        try {
            files.require_creatable(path);
        } catch (const Error& error) {
            found.push_back({key, fmt::format("{}: {}", key, error.what()), error.code()});
        }
    };
    look("job.run_dir", layout.root());
    look(checkpoint_key, layout.checkpoints());
    look(checkpoint_key, checkpoint);
    return found;
}

}  // namespace trainctl
