#include "support/trials.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "trainctl/base/error.h"

namespace trainctl::test {

namespace {

// One of so many of the usual trials: what runs ten times as slowly under a sanitizer makes fewer.
std::uint64_t share_of_trials() {
    const char* const share = std::getenv("TRAINCTL_TRIALS_ONE_IN");  // NOLINT(concurrency-mt-unsafe)
    return share == nullptr ? 1 : std::max<std::uint64_t>(1, std::strtoull(share, nullptr, 10));
}

}  // namespace

TrialRange trial_range(std::uint64_t usual) {
    const char* const asked = std::getenv("TRAINCTL_TRIALS");  // NOLINT(concurrency-mt-unsafe)
    if (asked == nullptr) return {0, std::max<std::uint64_t>(1, usual / share_of_trials())};
    TrialRange range;
    char colon = '\0';
    std::istringstream text{std::string(asked)};
    if (!(text >> range.first >> colon >> range.end) || colon != ':' || range.first >= range.end ||
        text.peek() != std::istringstream::traits_type::eof())
        fail(Exit::Usage, fmt::format("TRAINCTL_TRIALS: FIRST:END expected, found '{}'", asked));
    return range;
}

void report_trials(const std::string& fault_class, std::uint64_t count, const std::string& what) {
    fmt::print("fault trials: {} {} {}\n", fault_class, count, what);
    std::fflush(stdout);
}

}  // namespace trainctl::test
