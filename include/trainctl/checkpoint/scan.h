// What lies in a checkpoint directory: COMMIT, MANIFEST and file sizes are checked, no payload is read.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trainctl/base/file_system.h"
#include "trainctl/checkpoint/place.h"
#include "trainctl/rundir/commit.h"
#include "trainctl/rundir/layout.h"

namespace trainctl {

struct CompleteCheckpoint {
    CheckpointName name;
    std::string path;
    Manifest manifest;
    std::string manifest_text;
    std::optional<std::string> suspect = {};  // a reader found damage in it, and what (suspicion.h)
    bool pinned = false;
};

enum class RejectReason {
    Uncommitted,  // no COMMIT: an interrupted save, or one being written or deleted; it never existed
    Foreign,      // of another run
    Damaged,      // was committed once, and something is missing or wrong: evidence of progress
};

struct RejectedCheckpoint {
    CheckpointName name;
    std::string path;
    RejectReason reason = RejectReason::Damaged;
    std::string text;  // for people
};

struct CheckpointScan {
    std::vector<CompleteCheckpoint> complete;  // newest first: by step, then attempt, as numbers
    std::vector<RejectedCheckpoint> rejected;  // newest first
};

// A missing `root` is an empty one; entries that are not checkpoints are ignored. With an empty `run_id`
// checkpoints of all runs are complete. Exit::BadInput only if `root` cannot be listed.
CheckpointScan scan_checkpoints(FileSystem& files, const std::string& root, const std::string& run_id,
                                Require require = Require::AllFiles);

// What this process sees in several places together, replicas of one checkpoint counted once. A place that
// cannot be listed is passed over, unless it is the first.
CheckpointScan scan_places(FileSystem& files, const std::vector<Place>& places, const std::string& run_id);

}  // namespace trainctl
