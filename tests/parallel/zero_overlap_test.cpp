// Communication hides behind backward and forward: shown on virtual clocks, where nothing else takes time.
#include "parallel/sim_harness.h"
#include "support/catch.h"
#include "support/reference_ops.h"
#include "trainctl/ops/backends.h"

namespace trainctl::test {
namespace {

constexpr int units = 8;
constexpr double unit_s = 0.006;     // compute time of one unit, forward or backward
constexpr double message_s = 0.005;  // of one bucket, or of one unit's gather

struct Timing {
    Timed timed = Timed::Nothing;
    bool overlap = true;
    int stage = 1;
    int micro_batches = 1;
    DType reduce_dtype = DType::F32;
    double bucket_mb = 0.0;
};

struct Measured {
    double step_s = 0.0;  // in the steady state
    int buckets = 0;
    int messages = 0;  // with gradients, per step
};

// Steps of a model whose units take unit_s each way.
Measured measure(const Timing& timing) {
    SimProfile profile;
    profile.flops_per_s = 1.0;
    profile.message_latency_s = message_s;
    const auto device = make_sim_device(profile);
    const auto reference = make_reference_ops();
    const auto ops = make_sim_ops(*device, reference->ops());
    TimedCommunicator data(*device, 1, 4, timing.timed);
    const auto compute = device->make_stream("compute", StreamRole::Compute);
    const auto communication = device->make_stream("communication", StreamRole::Communication);
    ZeroOptions options;
    options.stage = timing.stage;
    options.overlap = timing.overlap;
    options.reduce_dtype = timing.reduce_dtype;
    options.gradient_bucket_mb = timing.bucket_mb;
    const auto zero = make_zero_state(*device, ops->ops(), {data}, *compute, *communication,
                                      equal_units(units, 512 * 100), options);
    const Buffer scalars = device->allocate(step_scalars * sizeof(double), Memory::Device, "scalars");
    const auto step = [&] {
        for (int micro = 0; micro < timing.micro_batches; ++micro) {
            zero->grads().begin_micro(0, micro,
                                      micro + 1 == timing.micro_batches ? MicroKind::Last : MicroKind::Inner);
            for (UnitId unit = 0; unit < units; ++unit) {
                zero->params().acquire(unit, *compute);
                if (unit + 1 < units) zero->params().hint(unit + 1);
                device->work(*compute, unit_s, 0.0);
                zero->params().release(unit, *compute);
            }
            for (UnitId unit = units - 1; unit >= 0; --unit) {
                zero->params().acquire(unit, *compute);
                if (unit > 0) zero->params().hint(unit - 1);
                zero->grads().grads(unit, *compute);
                device->work(*compute, unit_s, 0.0);
                zero->params().release(unit, *compute);
                zero->grads().ready(unit, *compute);
            }
        }
        zero->update(scalars.view(Shape{step_scalars}, DType::F64), {});
    };
    step();
    step();
    const double before = device->clock_s(*compute);
    data.gradient_messages = 0;
    constexpr int steps = 3;
    for (int i = 0; i < steps; ++i) step();
    return {(device->clock_s(*compute) - before) / steps, zero->buckets(), data.gradient_messages / steps};
}

double growth_s(Timing timing) {
    const double slow = measure(timing).step_s;
    timing.timed = Timed::Nothing;
    return slow - measure(timing).step_s;
}

TEST_CASE("With 5 ms per bucket a step grows by one bucket, whatever the stage") {
    for (const int stage : {0, 1, 2, 3}) {
        for (const DType reduce : {DType::F32, DType::BF16}) {
            Timing timing;
            timing.timed = Timed::Gradients;
            timing.stage = stage;
            timing.reduce_dtype = reduce;
            CHECK(measure(timing).buckets == units);
            CHECK(measure(timing).messages == units);
            // Only the last bucket, for which backward has nothing left to do, shows.
            CHECK(growth_s(timing) == Approx(message_s).margin(1e-6));
        }
    }
}

TEST_CASE("Without overlap every bucket shows: what the test above can see") {
    for (const int stage : {0, 1, 2, 3}) {
        Timing timing;
        timing.timed = Timed::Gradients;
        timing.stage = stage;
        timing.overlap = false;
        CHECK(growth_s(timing) == Approx(units * message_s).margin(1e-6));
    }
}

TEST_CASE("ZeRO 2 and 3 hide the reduction of every micro-batch, ZeRO 0 and 1 reduce once") {
    Timing timing;
    timing.timed = Timed::Gradients;
    timing.micro_batches = 4;
    for (const int stage : {0, 1, 2, 3}) {
        timing.stage = stage;
        CHECK(measure(timing).messages == units * (stage >= 2 ? 4 : 1));
        CHECK(growth_s(timing) == Approx(message_s).margin(1e-6));
    }
}

TEST_CASE("Weights are gathered behind the next forward") {
    Timing timing;
    timing.timed = Timed::Weights;
    for (const int stage : {1, 2, 3}) {
        timing.stage = stage;
        CHECK(growth_s(timing) == Approx(message_s).margin(1e-6));  // the first unit's only
    }
    timing.stage = 0;
    CHECK(growth_s(timing) == Approx(0.0).margin(1e-9));
}

TEST_CASE("ZeRO 3 gathers each unit ahead of use in both directions, and none that is still in its slot") {
    Timing timing;
    timing.timed = Timed::Weights;
    timing.stage = 3;
    CHECK(growth_s(timing) == Approx(message_s).margin(1e-6));
    // What would show: every unit on the way forward; backward begins with the last three in their slots.
    timing.overlap = false;
    CHECK(growth_s(timing) == Approx((units + units - 3) * message_s).margin(1e-6));
    // A further micro-batch begins with the first three in theirs.
    timing.micro_batches = 2;
    CHECK(growth_s(timing) == Approx((units + 3 * (units - 3)) * message_s).margin(1e-6));
}

}  // namespace
}  // namespace trainctl::test
