// The counters of a run: together with the job file they determine everything that is not a weight or a
// moment (learning rate, batch composition, dropout, Adam's bias correction).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace trainctl {

struct Progress {
    std::int64_t step = 0;             // steps completed, skipped ones included
    std::int64_t samples = 0;          // consumed
    std::int64_t tokens = 0;           // consumed target tokens
    std::int64_t applied_updates = 0;  // Adam's t
    std::int64_t skipped = 0;          // non-finite steps in all
    std::int64_t consecutive_skips = 0;
    std::vector<std::int64_t> recent_skips;  // steps (1-based) of skips within the last 1000 steps, ascending

    bool operator==(const Progress& other) const = default;

    // A step that was closed: counts it, and forgets skips older than 1000 steps.
    void advance(std::int64_t batch_samples, std::int64_t batch_tokens, bool applied);
};

// As checkpoints store it: flat name -> count. Reading refuses (Exit::BadInput) when a counter is missing,
// naming it.
std::map<std::string, std::int64_t> to_counters(const Progress& progress);
Progress progress_from_counters(const std::map<std::string, std::int64_t>& counters);

}  // namespace trainctl
