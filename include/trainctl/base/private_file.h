// Files that hold secrets: readable by their owner alone, or refused.
#pragma once

#include <cstdint>
#include <string>

namespace trainctl {

// The whole text of a file that is a regular one, is no symbolic link, belongs to this process's user and
// gives nothing to group and others (mode 0600 or less). Anything else is Exit::Usage, with the command that
// mends it; a missing or larger file Exit::Usage too. The text never appears in a message.
std::string read_private_text(const std::string& path, std::uint64_t limit_bytes = 1U << 16U);

}  // namespace trainctl
