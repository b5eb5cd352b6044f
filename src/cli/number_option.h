// Bounds of numeric options, refused in the words of the job file's keys.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>

#include "trainctl/config/key.h"

namespace trainctl {

// Larger counts of rounds, repetitions and the like are slips, and must not reach an `int`.
constexpr double most_repetitions = 1e6;

// A whole number within `bounds`: "expected at least 1, found 0". What is beyond 64 bits is refused as well,
// where the parser alone would take the nearest number.
CLI::Validator whole_number(const Bounds& bounds);

inline CLI::Validator at_least(std::int64_t low) { return whole_number({.low = static_cast<double>(low)}); }
inline CLI::Validator rank_count() { return whole_number({.low = 1, .high = 1 << 20}); }
inline CLI::Validator repetitions() { return whole_number({.low = 1, .high = most_repetitions}); }

}  // namespace trainctl
