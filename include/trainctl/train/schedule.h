// The learning rate as a pure function of stored counters: nothing to restore, nothing to drift after a
// resume.
#pragma once

#include <cstdint>

#include "trainctl/config/job_spec.h"

namespace trainctl {

// Rate of the update made in step `step` (0-based) of `total_steps`, before any scaling with the batch.
//
// Warm-up of W steps: lr (step + 1) / W, so that the first update already uses lr / W and step W - 1 the
// peak. After it, with r = (step + 1 - W) / (D - W) and D = decay_steps or total_steps:
//   constant      lr
//   linear        min + (lr - min) (1 - r)
//   cosine        min + (lr - min) (1 + cos(pi r)) / 2
//   polynomial    min + (lr - min) (1 - r)^power
//   inverse_sqrt  max(min, lr sqrt(max(W, 1) / (step + 1)))
//   wsd           lr until wsd_decay_steps before D, then shape(q) with q the decayed share:
//                 linear 1 - q, minus_sqrt 1 - sqrt(q), exponential 2 * 0.5^q - 1
// Linear, cosine, polynomial and wsd give exactly min_lr at step D - 1 and after it.
double learning_rate(const ScheduleSpec& schedule, double peak_lr, std::int64_t total_steps,
                     std::int64_t step);

// The peak rate after optional scaling with the global batch: x batch / reference, or x sqrt(batch /
// reference).
double scaled_peak_lr(const OptimizerSpec& optimizer, std::int64_t global_batch_size);

}  // namespace trainctl
