#include "trainctl/train/schedule.h"

#include <algorithm>
#include <cmath>

namespace trainctl {
namespace {

constexpr double pi = 3.14159265358979323846;

// Share of the way from the peak down to the minimum that is still left, in [0, 1], after `done` of `length`
// steps.
double remaining(const ScheduleSpec& schedule, double done, double length) {
    if (done >= length) return 0.0;  // exactly min_lr on the last step, not nearly
    const double r = std::max(0.0, done / length);
    switch (schedule.kind) {
        case ScheduleKind::Linear:
            return 1.0 - r;
        case ScheduleKind::Cosine:
            return 0.5 * (1.0 + std::cos(pi * r));
        case ScheduleKind::Polynomial:
            return std::pow(1.0 - r, schedule.power);
        case ScheduleKind::Wsd:
            switch (schedule.wsd_shape) {
                case WsdShape::Linear:
                    return 1.0 - r;
                case WsdShape::MinusSqrt:
                    return 1.0 - std::sqrt(r);
                case WsdShape::Exponential:
                    return 2.0 * std::pow(0.5, r) - 1.0;
            }
            break;
        case ScheduleKind::Constant:
        case ScheduleKind::InverseSqrt:
            break;
    }
    return 1.0;
}

}  // namespace

double learning_rate(const ScheduleSpec& schedule, double peak_lr, std::int64_t total_steps,
                     std::int64_t step) {
    const auto done = static_cast<double>(step + 1);
    const auto warmup = static_cast<double>(schedule.warmup_steps);
    if (done <= warmup) return peak_lr * (done / warmup);

    const auto end = static_cast<double>(schedule.decay_steps > 0 ? schedule.decay_steps : total_steps);
    const double min_lr = schedule.min_lr;
    switch (schedule.kind) {
        case ScheduleKind::Constant:
            return peak_lr;
        case ScheduleKind::InverseSqrt:
            return std::max(min_lr, peak_lr * std::sqrt(std::max(warmup, 1.0) / done));
        case ScheduleKind::Wsd: {
            const auto length = static_cast<double>(schedule.wsd_decay_steps);
            const double left = length > 0.0 ? remaining(schedule, done - (end - length), length) : 1.0;
            return min_lr + (peak_lr - min_lr) * left;
        }
        case ScheduleKind::Linear:
        case ScheduleKind::Cosine:
        case ScheduleKind::Polynomial:
            break;
    }
    return min_lr + (peak_lr - min_lr) * remaining(schedule, done - warmup, end - warmup);
}

double scaled_peak_lr(const OptimizerSpec& optimizer, std::int64_t global_batch_size) {
    if (optimizer.scale_lr == LrScaling::None) return optimizer.lr;
    const double ratio =
        static_cast<double>(global_batch_size) / static_cast<double>(optimizer.scale_lr_reference_batch);
    return optimizer.lr * (optimizer.scale_lr == LrScaling::Linear ? ratio : std::sqrt(ratio));
}

}  // namespace trainctl
