// Which checkpoints may go. Pure; whoever holds the lease then removes them, COMMIT first.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "trainctl/base/file_system.h"
#include "trainctl/checkpoint/scan.h"
#include "trainctl/rundir/journal.h"
#include "trainctl/rundir/layout.h"

namespace trainctl {

struct RetentionItem {
    CheckpointName name;
    bool verified = false;  // read back in full at least once
    bool healthy = false;
    bool suspect = false;  // damage was found in it
    bool pinned = false;   // by a user
    // The run was last continued from it, and nothing saved since was read back in full or is healthy.
    bool origin = false;
    bool set_aside = false;       // by a rollback (lineage.h)
    bool after_rollback = false;  // saved since the last one; true where there was none
};

struct RetentionPolicy {
    std::int64_t keep_latest = 3;
    std::int64_t keep_every = 0;  // also keep steps divisible by this; 0: none
};

// Why a checkpoint stays, the first that holds; Not: it may go.
enum class Keep { Not, Pinned, Suspect, SetAside, Latest, Milestone, Verified, Healthy, Origin };

// For `ckpt prune`: "one of the newest 3", ...
std::string_view keep_reason(Keep keep);

// What retention needs to know of the complete checkpoints of one run, in their order.
std::vector<RetentionItem> retention_items(const std::vector<CompleteCheckpoint>& complete,
                                           const Journal& journal);

// One verdict per item. Those that a rollback set aside fill no place and stay until one that was saved since
// is healthy; then they go. Kept whatever the policy says: pinned and suspect ones, which fill no place, and
// of the others the newest, the newest verified, the newest healthy and the one the run was continued from.
std::vector<Keep> judge_retention(const std::vector<RetentionItem>& items, const RetentionPolicy& policy);

// The indices of those that may go, oldest first.
std::vector<std::size_t> plan_retention(const std::vector<RetentionItem>& items,
                                        const RetentionPolicy& policy);

// Removes a checkpoint so that it never looks complete in between: COMMIT, durably; then the rest. Also for
// incomplete ones. If COMMIT cannot be removed nothing else is.
void remove_checkpoint(FileSystem& files, const std::string& root, const std::string& directory_name);

}  // namespace trainctl
