// `trainctl ckpt list|inspect|verify|diff`: text for people or JSON, and the exit code. They only read,
// except for the mark that `verify` leaves or takes away (suspicion.h).
#pragma once

#include <string>

#include "trainctl/base/command_result.h"
#include "trainctl/base/file_system.h"

namespace trainctl {

// All checkpoints in `path`, by step, newest first: a checkpoint root, a run directory that has one, or one
// checkpoint (then its neighbours too). What is wrong with any is said, and what the words mean.
// Exit::BadInput if the directory is missing, or holds neither a run nor checkpoints.
CommandResult checkpoint_list(FileSystem& files, const std::string& path, OutputFormat form);

// What one checkpoint holds. `path`: a checkpoint directory, or as above for the newest complete one.
CommandResult checkpoint_inspect(FileSystem& files, const std::string& path, OutputFormat form);

// Reads every byte of one checkpoint: checksums, and that each payload file is valid safetensors that agrees
// with MANIFEST. Reports every damaged file. Exit::BadInput if anything is wrong.
CommandResult checkpoint_verify(FileSystem& files, const std::string& path, OutputFormat form);

enum class DiffDepth {
    Hashes,  // tensors are compared by the hashes in MANIFEST: no payload is read
    Values,  // those that differ are read, checked and compared element by element, at any two layouts
};
// What differs between two checkpoints, each given as above. Equal in state: the same tensors, counters and
// scalars; then Exit::Ok. Exit::BadInput if not, or if one of them is damaged. Layouts and jobs are compared
// as well, but are no part of the state. Memory: some MiB, whatever the size.
CommandResult checkpoint_diff(FileSystem& files, const std::string& a, const std::string& b, DiffDepth depth,
                              OutputFormat form);

}  // namespace trainctl
