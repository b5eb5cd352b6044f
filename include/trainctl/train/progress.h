// The counters of a run: together with the job file they determine everything that is not a weight or a
// moment (learning rate, batch composition, dropout, Adam's bias correction).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trainctl/train/loss_scaler.h"

namespace trainctl {

struct Progress {
    std::int64_t step = 0;             // steps completed, skipped ones included
    std::int64_t samples = 0;          // consumed
    std::int64_t tokens = 0;           // consumed target tokens
    std::int64_t applied_updates = 0;  // Adam's t
    std::int64_t skipped = 0;          // steps without an update in all: non-finite ones and overflows
    // Non-finite steps only; an overflow neither counts here nor ends a row.
    std::int64_t consecutive_skips = 0;
    std::vector<std::int64_t> recent_skips;  // steps (1-based) of skips within the last 1000 steps, ascending
    std::optional<LossScale> loss_scale;     // of the next step; fp16 only

    bool operator==(const Progress& other) const = default;

    // A step that was closed: counts it, and forgets skips older than 1000 steps. `next_loss_scale`: what the
    // LossScaler says.
    void advance(std::int64_t batch_samples, std::int64_t batch_tokens, StepOutcome outcome,
                 const std::optional<LossScale>& next_loss_scale);
};

// As checkpoints store it: flat name -> count, and what is no count. Reading refuses (Exit::BadInput) when
// one is missing, naming it; the loss scale is there as a whole or not at all.
std::map<std::string, std::int64_t> to_counters(const Progress& progress);
std::map<std::string, double> to_scalars(const Progress& progress);
Progress progress_from_checkpoint(const std::map<std::string, std::int64_t>& counters,
                                  const std::map<std::string, double>& scalars);

}  // namespace trainctl
