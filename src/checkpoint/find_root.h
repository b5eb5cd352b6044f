// Private to the room: which directory of checkpoints a path given on the command line stands for.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainctl/base/file_system.h"
#include "trainctl/checkpoint/place.h"
#include "trainctl/config/load.h"
#include "trainctl/rundir/layout.h"

namespace trainctl {

// What such a path may be; part of a message.
inline constexpr std::string_view expected_checkpoint_path =
    "expected a run directory (job.run_dir), a checkpoint directory (checkpoint.directory), or one "
    "checkpoint, like RUN/checkpoints/s000001000-a0001-9f3c2a1b";

// The job as the newest attempt of the run resolved it; nullopt: no record. It may have problems in this
// build.
std::optional<LoadedJob> recorded_job(FileSystem& files, const RunLayout& layout);

// Where the newest attempt's record says that saves go; empty: it says nothing, or RUN/checkpoints.
std::string recorded_root(FileSystem& files, const RunLayout& layout);

// All places of the run in `path`, as its record names them; otherwise `root` alone.
std::vector<Place> recorded_places(FileSystem& files, const std::string& path, const std::string& root);

bool is_checkpoint(FileSystem& files, const std::string& path);

// The directory that holds the checkpoints: of a run directory its checkpoints/ or, where that is missing or
// empty, the checkpoint.directory that its record names; of one checkpoint its parent; else `path` itself.
// Exit::BadInput if nothing of ours is there; an empty directory will do.
std::string find_checkpoint_root(FileSystem& files, const std::string& path);

// What to say where there is none.
std::string no_checkpoints_text(const std::string& root);

std::string without_trailing_slash(std::string path);

}  // namespace trainctl
