// Will the disk hold the checkpoints? Asked before the first step, not found out at the first save.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "trainctl/base/file_system.h"
#include "trainctl/checkpoint/lineage.h"
#include "trainctl/checkpoint/retention.h"
#include "trainctl/model/named_slice.h"

namespace trainctl {

// What a run needs at most at one time: keep_latest checkpoints, two that retention protects where they are
// older (the newest healthy one and the newest that was read back in full), and one more, since a new one is
// complete before the oldest goes; less those that are there already. Milestones (keep_every) come on top and
// are not counted.
struct SpaceNeed {
    std::uint64_t bytes_per_checkpoint = 0;  // all ranks together
    std::uint64_t files_per_checkpoint = 1;
    std::int64_t keep_latest = 1;
    std::int64_t present = 0;                          // replaceable_checkpoints
    [[nodiscard]] std::int64_t still_to_come() const;  // at least one
};

// The complete checkpoints of this run that newer ones will replace: neither milestones nor suspect nor
// pinned, nor set aside by a rollback.
std::int64_t replaceable_checkpoints(FileSystem& files, const std::string& root, const std::string& run_id,
                                     const RetentionPolicy& policy, const Lineage& lineage = {});

// Tensor bytes of these slices and their headers.
std::uint64_t predicted_bytes(std::span<const NamedSlice> slices);
// Master weights and two moments in fp32, before any slice exists.
std::uint64_t predicted_bytes(std::int64_t parameters, std::int64_t ranks);

// Free space and inodes of the file system that holds, or will hold, `directory`; changes nothing (`config
// check`). nullopt: enough, with a margin of 5 %. Otherwise what is needed and why, what is free, what to do.
std::optional<std::string> lack_of_space(FileSystem& files, const std::string& directory,
                                         const SpaceNeed& need);

// The same, after creating the directory and proving by a real file, written, synced and removed, that it
// takes data: quotas and read-only mounts do not show in the free space. Exit::Resource.
void require_space(FileSystem& files, const std::string& directory, const SpaceNeed& need);

}  // namespace trainctl
