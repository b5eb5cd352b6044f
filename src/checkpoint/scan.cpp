#include "trainctl/checkpoint/scan.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "trainctl/base/error.h"
#include "trainctl/checkpoint/suspicion.h"

namespace trainctl {
namespace {

constexpr std::uint64_t max_commit_bytes = 512;

// The run that a COMMIT names, as far as it can be read: decides between foreign and damaged.
std::string committed_run(FileSystem& files, const std::string& commit_path) {
    try {
        return parse_commit(read_text(files, commit_path, max_commit_bytes), commit_path).run_id;
    } catch (const Error&) {
        return {};
    }
}

template <class Checkpoint>
void sort_newest_first(std::vector<Checkpoint>& list) {
    std::sort(list.begin(), list.end(), [](const Checkpoint& a, const Checkpoint& b) {
        return std::tie(a.name.step, a.name.attempt, a.name.nonce) >
               std::tie(b.name.step, b.name.attempt, b.name.nonce);
    });
}

// A complete checkpoint, or why it is none.
struct Looked {
    std::optional<CompleteCheckpoint> complete;
    std::optional<RejectReason> reason;
    std::string text;
};

Looked look_at(FileSystem& files, const std::string& path, const CheckpointName& name,
               const std::string& run_id, Require require) {
    RejectReason reason = RejectReason::Damaged;
    try {
        const std::string commit_path = join_path(path, std::string(commit_file_name));
        if (!files.status(commit_path)) {
            reason = RejectReason::Uncommitted;
            fail(Exit::BadInput,
                 path + ": no COMMIT: the save was not completed, or the checkpoint was deleted");
        }
        const std::string owner = committed_run(files, commit_path);
        if (!run_id.empty() && !owner.empty() && owner != run_id) {
            reason = RejectReason::Foreign;
            fail(Exit::BadInput,
                 fmt::format("{}: belongs to run {}, not to this run {}", path, owner, run_id));
        }
        CommittedManifest committed = read_committed(files, path, require);
        const Manifest& manifest = committed.manifest;
        if (manifest.step != name.step || manifest.attempt != name.attempt) {
            fail(Exit::BadInput, fmt::format("{}: MANIFEST is of step {}, attempt {}", path, manifest.step,
                                             manifest.attempt));
        }
        if (is_healthy(files, path)) committed.manifest.health = Health::Good;
        return {CompleteCheckpoint{name, path, std::move(committed.manifest), std::move(committed.text),
                                   read_suspicion(files, path), is_pinned(files, path)},
                std::nullopt,
                {}};
    } catch (const Error& error) {
        return {std::nullopt, reason, error.what()};
    }
}

}  // namespace

CheckpointScan scan_checkpoints(FileSystem& files, const std::string& root, const std::string& run_id,
                                Require require) {
    CheckpointScan scan;
    if (!files.status(root)) return scan;
    for (const std::string& entry : files.list(root)) {
        const auto name = parse_checkpoint_directory_name(entry);
        if (!name) continue;
        const std::string path = join_path(root, entry);
        Looked looked = look_at(files, path, *name, run_id, require);
        // Storage that failed once may not fail again; what is damaged stays so.
        if (looked.reason == RejectReason::Damaged) looked = look_at(files, path, *name, run_id, require);
        if (looked.complete) {
            scan.complete.push_back(std::move(*looked.complete));
        } else {
            scan.rejected.push_back({*name, path, *looked.reason, looked.text});
        }
    }
    sort_newest_first(scan.complete);
    sort_newest_first(scan.rejected);
    return scan;
}

}  // namespace trainctl
