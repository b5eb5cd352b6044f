// Private to the room: the one checkpoint that a command line means.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainctl/base/file_system.h"
#include "trainctl/rundir/commit.h"

namespace trainctl {

struct FoundCheckpoint {
    std::string path;
    CommittedManifest committed;
    std::vector<std::string> newer_damaged;  // passed over for this one, and why
};

// `given`: one checkpoint; or a run directory or a directory of checkpoints, and of those the one of `step`,
// or else the newest complete one. Exit::BadInput if it is not there or not complete; Exit::Usage if `step`
// fits several. With `run`, a run directory, checkpoints of other runs are passed over.
FoundCheckpoint find_checkpoint(FileSystem& files, const std::string& given,
                                std::optional<std::int64_t> step = {}, const std::string& run = {});

}  // namespace trainctl
