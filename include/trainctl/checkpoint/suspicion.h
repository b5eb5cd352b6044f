// What a reader found wrong with a committed checkpoint, remembered in a small file SUSPECT beside COMMIT, so
// that retention, `ckpt list` and whoever comes next know. What was committed is not touched.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "trainctl/base/file_system.h"

namespace trainctl {

inline constexpr std::string_view suspect_file_name = "SUSPECT";

// Why the checkpoint in `directory` is suspect; nullopt: nobody found damage. A mark that cannot be read is a
// mark.
std::optional<std::string> read_suspicion(FileSystem& files, const std::string& directory);

// Durable on return; an earlier mark is replaced. Nothing happens where COMMIT is gone: a deletion may be on
// its way. Exit::Resource: a directory that cannot be written to.
void remember_suspicion(FileSystem& files, const std::string& directory, const std::string& why);

// For whoever read every byte and found it right. Exit::Resource as above.
void clear_suspicion(FileSystem& files, const std::string& directory);

}  // namespace trainctl
