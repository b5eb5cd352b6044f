// Will the disk hold the checkpoints? Asked before the first step, not found out at the first save.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "trainctl/base/file_system.h"
#include "trainctl/model/named_slice.h"

namespace trainctl {

struct SpaceNeed {
    std::uint64_t bytes_per_checkpoint = 0;  // all ranks together
    std::uint64_t files_per_checkpoint = 1;
    std::int64_t copies = 1;  // that are still to be added: keep_latest + 1, less what is there already
};

// Tensor bytes of these slices and their headers.
std::uint64_t predicted_bytes(std::span<const NamedSlice> slices);
// Master weights and two moments in fp32, before any slice exists.
std::uint64_t predicted_bytes(std::int64_t parameters, std::int64_t ranks);

// Free space and inodes of the file system that holds, or will hold, `directory`; changes nothing (`config
// check`). nullopt: enough, with a margin of 5 %. Otherwise what is needed, what is free, what to do.
std::optional<std::string> space_for_first_checkpoint(FileSystem& files, const std::string& directory,
                                                      const SpaceNeed& need);

// The same, after creating the directory and proving by a real file, written, synced and removed, that it
// takes data: quotas and read-only mounts do not show in the free space. Exit::Resource.
void require_space(FileSystem& files, const std::string& directory, const SpaceNeed& need);

}  // namespace trainctl
