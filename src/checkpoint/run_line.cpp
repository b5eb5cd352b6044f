#include "checkpoint/run_line.h"

#include <algorithm>

#include "checkpoint/find_root.h"
#include "trainctl/base/error.h"
#include "trainctl/rundir/layout.h"
#include "trainctl/rundir/run_identity.h"

namespace trainctl {

std::optional<std::string> enclosing_run(FileSystem& files, const std::string& path) {
    std::string at = without_trailing_slash(path);
    for (int up = 0; up <= 2; ++up) {
        if (files.status(RunLayout(at).run_json())) return at;
        at = parent_path(at);
    }
    return std::nullopt;
}

RunLine::RunLine(FileSystem& files, const std::string& path) {
    const auto run = enclosing_run(files, path);
    if (!run) return;
    try {
        const RunLayout layout(*run);
        const auto identity = read_run_identity(files, layout);
        if (!identity) return;
        lineage_ = Lineage(read_journal(files, layout));
        run_id_ = identity->run_id;
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): what can be read of the checkpoints is shown
    }
}

bool RunLine::own(const CompleteCheckpoint& found) const {
    return !run_id_.empty() && found.manifest.run_id == run_id_;
}

bool RunLine::set_aside(const CompleteCheckpoint& found) const {
    return own(found) && lineage_.set_aside(found.name);
}

std::vector<std::size_t> RunLine::newest_first(const std::vector<CompleteCheckpoint>& complete) const {
    std::vector<std::size_t> order;
    for (std::size_t index = 0; index < complete.size(); ++index) {
        if (!set_aside(complete[index])) order.push_back(index);
    }
    const auto others = std::stable_partition(order.begin(), order.end(),
                                              [&](std::size_t index) { return own(complete[index]); });
    std::sort(order.begin(), others, [&](std::size_t a, std::size_t b) {
        return lineage_.newer(complete[a].name, complete[b].name);
    });
    return order;
}

}  // namespace trainctl
