// Private to the room: every byte of a checkpoint, read and judged.
#pragma once

#include <string>
#include <vector>

#include "trainctl/base/file_system.h"
#include "trainctl/rundir/manifest.h"

namespace trainctl {

// What is wrong with the payload files of the checkpoint in `path`: checksums, and that each is valid
// safetensors that agrees with MANIFEST. Empty: nothing.
std::vector<std::string> payload_problems(FileSystem& files, const std::string& path,
                                          const Manifest& manifest);

// Marks the checkpoint suspect by `who`, or takes the mark away. Returns what is to be said if that cannot be
// written; empty: nothing.
std::string settle_mark(FileSystem& files, const std::string& path, const std::string& who,
                        const std::vector<std::string>& problems);

}  // namespace trainctl
