// Dynamic loss scaling of fp16: the gradient is multiplied so that small elements do not vanish below fp16's
// smallest number; when large ones exceed its largest, the step is skipped and the scale lowered. Pure: every
// rank computes the same from the outcomes that all ranks agree on. Nothing is scaled in bf16 and fp32.
#pragma once

#include <cstdint>
#include <optional>

#include "trainctl/config/job_spec.h"

namespace trainctl {

// What became of one step, the same on all ranks. Only Applied changed weights and moments.
enum class StepOutcome {
    Applied,
    Overflow,   // the gradient is not finite where a smaller loss scale may help: part of fp16 training
    NonFinite,  // anything else that is not finite: counts against fault_tolerance.nonfinite_max_*
};

// What a run carries from step to step and through checkpoints.
struct LossScale {
    double scale = 1.0;
    std::int64_t good_steps = 0;  // applied in a row since the scale or an outcome changed
    std::int64_t hysteresis_left =
        0;  // the scale halves at the overflow that makes this 0, and at later ones

    bool operator==(const LossScale& other) const = default;
};

// The rules, those of Megatron: the scale doubles after growth_interval applied steps in a row, which also
// restores the hysteresis; it halves, never below the minimum, once as many overflows as the hysteresis have
// come since the last growth. No state; any thread.
class LossScaler {
  public:
    explicit LossScaler(const PrecisionSpec& precision);

    // Where a run stands: what was stored, the initial scale if nothing was; nullopt: nothing is scaled.
    [[nodiscard]] std::optional<LossScale> start(const std::optional<LossScale>& stored) const;
    // `used` is what the step was scaled by. A loss that is not finite is never an overflow of the scale,
    // which does not touch the forward pass; neither is a gradient once the scale is at its minimum.
    [[nodiscard]] StepOutcome judge(bool applied, double loss, const std::optional<LossScale>& used) const;
    // For the next step.
    [[nodiscard]] std::optional<LossScale> after(std::optional<LossScale> used, StepOutcome outcome) const;

  private:
    PrecisionSpec precision_;
};

}  // namespace trainctl
