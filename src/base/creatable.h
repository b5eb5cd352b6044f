// Private to the room: whether a directory could be made, found out without making anything.
#pragma once

#include <string>

namespace trainctl {

// FileSystem::require_creatable() for the kernel's files.
void require_creatable_directory(const std::string& path);

}  // namespace trainctl
