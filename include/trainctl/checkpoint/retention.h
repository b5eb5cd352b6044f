// Which checkpoints may go. Pure; the store then removes them, COMMIT first.
#pragma once

#include <cstdint>
#include <vector>

#include "trainctl/base/file_system.h"
#include "trainctl/rundir/layout.h"

namespace trainctl {

struct RetentionItem {
    CheckpointName name;
    bool verified = false;  // read back in full at least once
    bool healthy = false;
    bool suspect = false;  // damage was found in it
};

struct RetentionPolicy {
    std::int64_t keep_latest = 3;
    std::int64_t keep_every = 0;  // also keep steps divisible by this; 0: none
};

// `items`: the complete checkpoints of one run. Returns indices to remove, oldest first. Never among them,
// whatever the policy says: suspect ones, and of the others the newest, the newest verified, the newest
// healthy. A suspect one fills no place.
std::vector<std::size_t> plan_retention(const std::vector<RetentionItem>& items,
                                        const RetentionPolicy& policy);

// Removes a checkpoint so that it never looks complete in between: COMMIT, durably; then the rest. Also for
// incomplete ones. If COMMIT cannot be removed nothing else is.
void remove_checkpoint(FileSystem& files, const std::string& root, const std::string& directory_name);

}  // namespace trainctl
