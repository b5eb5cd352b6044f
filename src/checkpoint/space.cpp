#include "trainctl/checkpoint/space.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "trainctl/base/error.h"
#include "trainctl/base/text.h"
#include "trainctl/checkpoint/scan.h"
#include "trainctl/rundir/durable_file.h"
#include "trainctl/rundir/run_identity.h"

namespace trainctl {
namespace {

constexpr std::uint64_t header_estimate_bytes = 64U << 10U;  // of one file
constexpr std::int64_t protected_older = 2;                  // by retention, whatever keep_latest says
constexpr std::size_t probe_bytes = 1U << 20U;  // larger than what a file system can hide in an inode

// All of them and 5 % spare; what is beyond 64 bits is as good as infinite.
std::uint64_t with_spare(std::uint64_t bytes, std::uint64_t copies) {
    constexpr auto most = std::numeric_limits<std::uint64_t>::max();
    if (bytes > most / copies / 2) return most;
    return bytes * copies + bytes * copies / 20;
}

std::string nearest_existing(FileSystem& files, std::string path) {
    while (!files.status(path)) {
        const std::string parent = parent_path(path);
        if (parent == path) break;
        path = parent;
    }
    return path;
}

}  // namespace

std::uint64_t predicted_bytes(std::span<const NamedSlice> slices) {
    std::uint64_t total = header_estimate_bytes;
    for (const NamedSlice& slice : slices) total += slice.view.bytes();
    return total;
}

std::uint64_t predicted_bytes(std::int64_t parameters, std::int64_t ranks) {
    return static_cast<std::uint64_t>(parameters) * 12 +
           static_cast<std::uint64_t>(ranks) * header_estimate_bytes;
}

std::int64_t SpaceNeed::still_to_come() const {
    return std::max<std::int64_t>(1, std::max<std::int64_t>(1, keep_latest) + protected_older + 1 - present);
}

std::int64_t replaceable_checkpoints(FileSystem& files, const std::string& root, const std::string& run_id,
                                     const RetentionPolicy& policy, const Lineage& lineage) {
    const CheckpointScan scan = scan_checkpoints(files, root, run_id);
    return std::count_if(scan.complete.begin(), scan.complete.end(), [&](const CompleteCheckpoint& found) {
        const bool milestone = policy.keep_every > 0 && found.name.step % policy.keep_every == 0;
        return !milestone && !found.suspect && !found.pinned && !lineage.set_aside(found.name);
    });
}

std::optional<std::string> lack_of_space(FileSystem& files, const std::string& directory,
                                         const SpaceNeed& need) {
    const SpaceStatus space = files.space(nearest_existing(files, directory));
    const auto copies = static_cast<std::uint64_t>(need.still_to_come());
    const std::string arithmetic = fmt::format(
        "{}: checkpoint.keep_latest {}, {} older ones that are kept if they are the newest "
        "healthy "
        "or verified, and 1 because a new one is complete before the oldest goes; {} of them there already",
        counted(copies, "checkpoint"), need.keep_latest, protected_older, need.present);
    const std::uint64_t bytes = with_spare(need.bytes_per_checkpoint, copies);
    if (space.free_bytes < bytes) {
        return fmt::format(
            "checkpoints need {} in {} ({} x {} and 5 % spare; {}), {} are free; free space, lower "
            "checkpoint.keep_latest, or choose another checkpoint.directory",
            format_bytes(bytes), directory, copies, format_bytes(need.bytes_per_checkpoint), arithmetic,
            format_bytes(space.free_bytes));
    }
    const std::uint64_t inodes = (need.files_per_checkpoint + 3) * copies;
    // Some file systems have no fixed number of inodes and report 0.
    if (space.free_inodes != 0 && space.free_inodes < inodes) {
        return fmt::format(
            "checkpoints need {} files in {} ({} x {}; {}), {} inodes are free; remove files, lower "
            "checkpoint.keep_latest, or choose another checkpoint.directory",
            inodes, directory, copies, need.files_per_checkpoint + 3, arithmetic, space.free_inodes);
    }
    return std::nullopt;
}

void require_space(FileSystem& files, const std::string& directory, const SpaceNeed& need) {
    files.make_directories(directory);
    const std::string probe = join_path(directory, fmt::format(".probe-{:016x}", random_bits()));
    try {
        const std::unique_ptr<File> file = files.open(probe, Open::CreateNew);
        file->write(std::vector<std::byte>(probe_bytes));
        file->sync();
        file->close();
    } catch (const Error& error) {
        remove_quietly(files, probe);
        fail(Exit::Resource, fmt::format("checkpoints cannot be written: {}", error.what()));
    }
    files.remove_file(probe);
    const auto problem = lack_of_space(files, directory, need);
    if (problem) fail(Exit::Resource, *problem);
}

}  // namespace trainctl
