// Private to the room: what ranks tell one another while they copy a checkpoint.
#pragma once

#include <string>
#include <vector>

namespace trainctl {

// Rank -> rank 0: which files of MANIFEST I see whole.
std::string seen_text(const std::vector<bool>& seen);
std::vector<bool> parse_seen(const std::string& text);

// Rank 0 -> all: for each file the rank that copies it.
std::string dealt_text(const std::vector<int>& ranks);
std::vector<int> parse_dealt(const std::string& text);

// The rank that wrote "r00012.st" or "r00012-1.st"; -1 for another name.
int writer_of(const std::string& file_name);

}  // namespace trainctl
