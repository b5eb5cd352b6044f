#include "trainctl/train/schedule.h"

#include <cmath>
#include <vector>

#include "support/catch.h"

using namespace trainctl;

namespace {

constexpr double peak = 6e-4;
constexpr double low = 6e-5;
constexpr std::int64_t total = 1000;

ScheduleSpec schedule_of(ScheduleKind kind, std::int64_t warmup = 100) {
    ScheduleSpec schedule;
    schedule.kind = kind;
    schedule.warmup_steps = warmup;
    schedule.min_lr = low;
    schedule.wsd_decay_steps = 200;
    schedule.power = 2.0;
    return schedule;
}

const std::vector<ScheduleKind> all_kinds = {ScheduleKind::Constant,    ScheduleKind::Linear,
                                             ScheduleKind::Cosine,      ScheduleKind::Polynomial,
                                             ScheduleKind::InverseSqrt, ScheduleKind::Wsd};

}  // namespace

TEST_CASE("every schedule warms up from lr/W to exactly the peak") {
    for (const ScheduleKind kind : all_kinds) {
        const ScheduleSpec schedule = schedule_of(kind);
        INFO("kind " << static_cast<int>(kind));
        CHECK(learning_rate(schedule, peak, total, 0) == Approx(peak / 100).epsilon(1e-15));
        CHECK(learning_rate(schedule, peak, total, 99) == peak);
        for (std::int64_t step = 1; step < 100; ++step) {
            CHECK(learning_rate(schedule, peak, total, step) >
                  learning_rate(schedule, peak, total, step - 1));
        }
    }
}

TEST_CASE("decaying schedules never rise after the peak and end exactly at min_lr") {
    for (const ScheduleKind kind :
         {ScheduleKind::Linear, ScheduleKind::Cosine, ScheduleKind::Polynomial, ScheduleKind::Wsd}) {
        for (const std::int64_t warmup : {0, 1, 100}) {
            const ScheduleSpec schedule = schedule_of(kind, warmup);
            for (std::int64_t step = std::max<std::int64_t>(warmup, 1); step < total; ++step) {
                CHECK(learning_rate(schedule, peak, total, step) <=
                      learning_rate(schedule, peak, total, step - 1));
            }
            CHECK(learning_rate(schedule, peak, total, total - 1) == low);
            CHECK(learning_rate(schedule, peak, total, total + 50) == low);
        }
    }
}

TEST_CASE("cosine is halfway down halfway through, and wsd flat until its decay") {
    const ScheduleSpec cosine = schedule_of(ScheduleKind::Cosine);
    CHECK(learning_rate(cosine, peak, total, 100 + 450 - 1) == Approx(0.5 * (peak + low)).epsilon(1e-12));
    ScheduleSpec wsd = schedule_of(ScheduleKind::Wsd);
    CHECK(learning_rate(wsd, peak, total, 799) == peak);
    CHECK(learning_rate(wsd, peak, total, 800) < peak);
    CHECK(learning_rate(wsd, peak, total, 899) == Approx(0.5 * (peak + low)).epsilon(1e-12));
    wsd.wsd_shape = WsdShape::MinusSqrt;
    CHECK(learning_rate(wsd, peak, total, 849) == Approx(low + (peak - low) * (1 - 0.5)).epsilon(1e-12));
    wsd.wsd_shape = WsdShape::Exponential;
    CHECK(learning_rate(wsd, peak, total, 899) ==
          Approx(low + (peak - low) * (2 * std::sqrt(0.5) - 1)).epsilon(1e-12));
}

TEST_CASE("inverse_sqrt is floored at min_lr") {
    const ScheduleSpec schedule = schedule_of(ScheduleKind::InverseSqrt);
    CHECK(learning_rate(schedule, peak, total, 399) == Approx(peak / 2).epsilon(1e-15));
    CHECK(learning_rate(schedule, peak, 1'000'000, 999'999) == low);
}

TEST_CASE("decay_steps ends the decay before the last step") {
    ScheduleSpec schedule = schedule_of(ScheduleKind::Linear);
    schedule.decay_steps = 500;
    CHECK(learning_rate(schedule, peak, total, 499) == low);
    CHECK(learning_rate(schedule, peak, total, 498) > low);
    CHECK(learning_rate(schedule, peak, total, 900) == low);
}

TEST_CASE("the peak scales with the global batch as asked") {
    OptimizerSpec optimizer;
    optimizer.lr = 1e-3;
    optimizer.scale_lr_reference_batch = 64;
    CHECK(scaled_peak_lr(optimizer, 256) == 1e-3);
    optimizer.scale_lr = LrScaling::Linear;
    CHECK(scaled_peak_lr(optimizer, 256) == Approx(4e-3));
    optimizer.scale_lr = LrScaling::Sqrt;
    CHECK(scaled_peak_lr(optimizer, 256) == Approx(2e-3));
}
