// Fuzz target: reading a journal segment never fails, whatever a crash or a bad disk left of it; and damage
// is told unless it is an unfinished last line.
#include "trainctl/rundir/journal.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const trainctl::JournalSegment segment = trainctl::parse_journal_segment(text, "a0001.log");
    const auto newlines = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
    const std::size_t lines = newlines + (!text.empty() && text.back() != '\n' ? 1 : 0);
    if (segment.records.size() + segment.problems.size() + (segment.torn ? 1 : 0) != lines) std::abort();
    return 0;
}
