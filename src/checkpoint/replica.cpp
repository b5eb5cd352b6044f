#include "checkpoint/replica.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "checkpoint/payload_copy.h"
#include "checkpoint/payload_reader.h"
#include "trainctl/base/error.h"
#include "trainctl/checkpoint/suspicion.h"
#include "trainctl/rundir/durable_file.h"
#include "trainctl/rundir/layout.h"

namespace trainctl {
namespace {

constexpr std::uint64_t commit_limit_bytes = 512;
constexpr std::uint64_t manifest_limit_bytes = 1U << 30U;

bool holds_text(FileSystem& files, const std::string& path, const std::string& text, std::uint64_t limit) {
    try {
        return files.status(path) && read_text(files, path, limit) == text;
    } catch (const Error&) {
        return false;
    }
}

// nullopt: torn, or otherwise unreadable.
std::optional<CommitMarker> committed(FileSystem& files, const std::string& path) {
    try {
        return parse_commit(read_text(files, path, commit_limit_bytes), path);
    } catch (const Error&) {
        return std::nullopt;
    }
}

std::string commit_path(const std::string& directory) {
    return join_path(directory, std::string(commit_file_name));
}
std::string manifest_path(const std::string& directory) {
    return join_path(directory, std::string(manifest_file_name));
}

// What is damaged is not taken apart for a source that is no better, or that is the same directory by another
// path.
void require_payload(FileSystem& files, const std::string& from, const Manifest& manifest,
                     const std::vector<std::size_t>& wanted) {
    for (const std::size_t index : wanted) {
        const ManifestFile& file = manifest.files[index];
        ChunkReader(files, {join_path(from, file.name)}, file, manifest.chunk_bytes).verify_all();
    }
}

}  // namespace

std::uint64_t ReplicaPlan::lacking_bytes(const Manifest& manifest) const {
    std::uint64_t bytes = 0;
    for (const std::size_t index : lacking) bytes += manifest.files[index].bytes;
    return bytes;
}

ReplicaPlan plan_replica(FileSystem& files, const CommittedManifest& source, const std::string& root) {
    const Manifest& manifest = source.manifest;
    ReplicaPlan plan;
    plan.path = join_path(root, manifest.directory);
    const bool begun = files.status(plan.path).has_value();
    const bool has_commit = begun && files.status(commit_path(plan.path));
    const CommitMarker ours = commit_of(manifest, source.text);
    if (has_commit) {
        const auto found = committed(files, commit_path(plan.path));
        if (found && found->manifest_sha256 != ours.manifest_sha256) {
            fail(Exit::BadInput,
                 fmt::format(
                     "{} is another checkpoint of the same name (its COMMIT is of another MANIFEST), and is "
                     "left alone: choose another directory",
                     plan.path));
        }
    }
    for (std::size_t index = 0; index < manifest.files.size(); ++index) {
        if (!begun || !holds_payload(files, plan.path, manifest.files[index], manifest.chunk_bytes))
            plan.lacking.push_back(index);
    }
    const bool right = plan.lacking.empty() && has_commit &&
                       holds_text(files, commit_path(plan.path), commit_text(ours), commit_limit_bytes) &&
                       holds_text(files, manifest_path(plan.path), source.text, manifest_limit_bytes);
    plan.state = right        ? ReplicaState::Complete
                 : has_commit ? ReplicaState::Damaged
                 : begun      ? ReplicaState::Incomplete
                              : ReplicaState::Absent;
    return plan;
}

void make_replica(FileSystem& files, const std::string& from, const CommittedManifest& source,
                  const std::string& root, const ReplicaPlan& plan, const std::function<void()>& fence) {
    const Manifest& manifest = source.manifest;
    if (plan.state == ReplicaState::Damaged) require_payload(files, from, manifest, plan.lacking);
    if (plan.state != ReplicaState::Complete) {
        make_durable_directories(files, root);
        files.make_directories(plan.path);  // its own entry becomes durable with COMMIT
        files.remove_file(commit_path(plan.path));
        files.sync_directory(plan.path);
        for (const std::size_t index : plan.lacking)
            copy_payload_file(files, from, plan.path, manifest.files[index], manifest.chunk_bytes);
        write_manifest(files, plan.path, source.text);
        if (fence) fence();
        write_commit(files, root, plan.path, commit_of(manifest, source.text));
    }
    clear_suspicion(files, plan.path);
    if (is_healthy(files, from) && !is_healthy(files, plan.path)) remember_health(files, plan.path);
}

}  // namespace trainctl
