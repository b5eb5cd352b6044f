// How many trials of a fault class a test makes: a few by default, the range that a campaign asks for.
#pragma once

#include <cstdint>
#include <string>

namespace trainctl::test {

// Trials are numbered; what trial n does follows from n alone.
struct TrialRange {
    std::uint64_t first = 0;
    std::uint64_t end = 0;
};

// FIRST:END from TRAINCTL_TRIALS in the environment (scripts/fault_campaign.sh sets it for one class at a
// time), else 0:`usual`, or only the first usual / TRAINCTL_TRIALS_ONE_IN of them (the asan preset sets it).
// Exit::Usage if that is no such range.
TrialRange trial_range(std::uint64_t usual);

// One line on stdout that the campaign's summary reads: "fault trials: C9 300 corruptions".
void report_trials(const std::string& fault_class, std::uint64_t count, const std::string& what);

}  // namespace trainctl::test
