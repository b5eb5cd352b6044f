#include "trainctl/train/loss_scaler.h"

#include <algorithm>
#include <cmath>

namespace trainctl {
namespace {

constexpr double growth = 2.0;
constexpr double backoff = 0.5;

}  // namespace

LossScaler::LossScaler(const PrecisionSpec& precision) : precision_(precision) {}

std::optional<LossScale> LossScaler::start(const std::optional<LossScale>& stored) const {
    if (precision_.compute != DType::F16) return std::nullopt;
    if (stored) return stored;
    return LossScale{precision_.loss_scale.initial, 0, precision_.loss_scale.hysteresis};
}

StepOutcome LossScaler::judge(bool applied, double loss, const std::optional<LossScale>& used) const {
    if (applied) return StepOutcome::Applied;
    const bool may_shrink = used && used->scale > precision_.loss_scale.minimum;
    return may_shrink && std::isfinite(loss) ? StepOutcome::Overflow : StepOutcome::NonFinite;
}

std::optional<LossScale> LossScaler::after(std::optional<LossScale> used, StepOutcome outcome) const {
    if (!used) return used;
    const LossScaleSpec& spec = precision_.loss_scale;
    switch (outcome) {
        case StepOutcome::Applied:
            // Not ==: the interval may have been shortened on resume.
            if (++used->good_steps >= spec.growth_interval)
                *used = {used->scale * growth, 0, spec.hysteresis};
            break;
        case StepOutcome::Overflow:
            used->good_steps = 0;
            used->hysteresis_left = std::max<std::int64_t>(used->hysteresis_left - 1, 0);
            if (used->hysteresis_left == 0) used->scale = std::max(used->scale * backoff, spec.minimum);
            break;
        case StepOutcome::NonFinite:
            used->good_steps = 0;
            break;
    }
    return used;
}

}  // namespace trainctl
