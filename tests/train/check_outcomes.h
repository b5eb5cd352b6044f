// Two trainings that must be the same: to the bit, or to rounding.
#pragma once

#include "train/train_harness.h"

namespace trainctl::test {

// Steps, evaluations and state, to the bit.
void check_same(const TrainOutcome& a, const TrainOutcome& b);

// Design section 5: losses and norms within 2e-6 over 20 steps, weights per tensor 1e-5. The exact gradient
// of GPT-2's key bias is zero: instead of being compared it must be noise beside that of the query bias.
void check_rounding(const TrainOutcome& a, const TrainOutcome& b);

// As many evaluations, at least one, each within `tolerance` relative to that of `one`.
void check_evaluations(const TrainOutcome& one, const TrainOutcome& other, double tolerance);

}  // namespace trainctl::test
