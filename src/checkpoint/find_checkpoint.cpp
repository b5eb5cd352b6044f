#include "checkpoint/find_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "checkpoint/find_root.h"
#include "checkpoint/run_line.h"
#include "trainctl/base/error.h"
#include "trainctl/checkpoint/resume.h"
#include "trainctl/checkpoint/scan.h"

namespace trainctl {
namespace {

[[noreturn]] void fail_empty(const std::string& root, const CheckpointScan& scan) {
    if (scan.rejected.empty())
        fail(Exit::BadInput, fmt::format("{}; {}.", no_checkpoints_text(root), expected_checkpoint_path));
    fail(Exit::BadInput,
         fmt::format("no complete checkpoint in {}. Restore one from a copy, or start a new run in "
                     "another job.run_dir:{}",
                     root, describe_rejected(scan.rejected)));
}

FoundCheckpoint newest_of(const std::string& root, CheckpointScan& scan, const RunLine& line) {
    const std::vector<std::size_t> order = line.newest_first(scan.complete);
    if (order.empty())
        fail(Exit::BadInput,
             fmt::format("{}: nothing complete but {}", root, available_steps(scan, line.lineage())));
    CompleteCheckpoint& newest = scan.complete[order.front()];
    std::vector<std::string> newer_damaged;
    for (const RejectedCheckpoint& rejected : scan.rejected) {
        if (rejected.reason == RejectReason::Damaged && !line.lineage().set_aside(rejected.name) &&
            line.lineage().newer(rejected.name, newest.name))
            newer_damaged.push_back(rejected.text);
    }
    return {
        newest.path, {std::move(newest.manifest), std::move(newest.manifest_text)}, std::move(newer_damaged)};
}

FoundCheckpoint of_step(const std::string& root, CheckpointScan& scan, const RunLine& line,
                        std::int64_t step) {
    std::vector<CompleteCheckpoint*> fitting;
    for (CompleteCheckpoint& found : scan.complete)
        if (found.name.step == step) fitting.push_back(&found);
    // What a rollback set aside is meant only where there is nothing else.
    const auto aside =
        std::stable_partition(fitting.begin(), fitting.end(),
                              [&](const CompleteCheckpoint* found) { return !line.set_aside(*found); });
    if (aside != fitting.begin()) fitting.erase(aside, fitting.end());
    std::string names;
    for (const CompleteCheckpoint* found : fitting) names += "\n  " + found->path;
    if (fitting.empty()) {
        std::vector<RejectedCheckpoint> rejected;
        for (const RejectedCheckpoint& found : scan.rejected)
            if (found.name.step == step) rejected.push_back(found);
        fail(Exit::BadInput,
             fmt::format("{}: no complete checkpoint of step {}; complete steps, newest first: {}{}", root,
                         step, available_steps(scan, line.lineage()), describe_rejected(rejected)));
    }
    if (fitting.size() > 1)
        fail(Exit::Usage,
             fmt::format("{}: step {} is there {} times; name the directory instead of the step:{}", root,
                         step, fitting.size(), names));
    return {fitting[0]->path, {std::move(fitting[0]->manifest), std::move(fitting[0]->manifest_text)}, {}};
}

}  // namespace

FoundCheckpoint find_checkpoint(FileSystem& files, const std::string& given, std::optional<std::int64_t> step,
                                const std::string& run) {
    const std::string path = without_trailing_slash(given);
    if (is_checkpoint(files, path) && !step) return {path, read_committed(files, path), {}};
    const std::string root = find_checkpoint_root(files, path);
    const RunLine line(files, run.empty() ? path : run);
    CheckpointScan scan = scan_checkpoints(files, root, run.empty() ? std::string() : line.run_id());
    if (scan.complete.empty()) fail_empty(root, scan);
    return step ? of_step(root, scan, line, *step) : newest_of(root, scan, line);
}

}  // namespace trainctl
