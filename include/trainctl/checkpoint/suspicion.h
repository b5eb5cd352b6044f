// What was learned of a committed checkpoint later, or is wished of it, remembered in small files beside
// COMMIT, so that retention, `ckpt list` and whoever comes next know: SUSPECT, what a reader found wrong with
// it; HEALTHY; PINNED. What was committed is not touched.
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

// The opposite, for the training itself: it went on well after the checkpoint was saved (file HEALTHY).
inline constexpr std::string_view healthy_file_name = "HEALTHY";
bool is_healthy(FileSystem& files, const std::string& directory);
// Durable on return. False, and nothing happens, where COMMIT is gone. Exit::Resource as above.
bool remember_health(FileSystem& files, const std::string& directory);

// The wish of a user: retention neither removes nor counts it (file PINNED).
inline constexpr std::string_view pinned_file_name = "PINNED";
bool is_pinned(FileSystem& files, const std::string& directory);
// Durable on return. False, and nothing happens, where COMMIT is gone or goes at this moment. Exit::Resource
// as above.
bool pin_checkpoint(FileSystem& files, const std::string& directory);
// Durable on return; one that is not pinned is left as it is.
void unpin_checkpoint(FileSystem& files, const std::string& directory);

// For whoever read every byte and found it right. Exit::Resource as above.
void clear_suspicion(FileSystem& files, const std::string& directory);

}  // namespace trainctl
