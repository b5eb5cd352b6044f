// Streams that run as late as events allow: a wait that is missing would be a wrong number here, every time.
#include <random>

#include "parallel/random_model.h"
#include "parallel/zero_harness.h"
#include "support/catch.h"

namespace trainctl::test {
namespace {

std::vector<ParamSpec> tied_model() {
    std::mt19937 random(8);
    auto params = random_params(random, 4, 400);
    for (ParamSpec& param : params)
        if (param.unit == 3) param.global = param.padded = Shape{param.global.elements()};
    return params;
}

ZeroRun late_run(int stage, DType reduce, double megabytes) {
    ZeroRun run;
    run.ranks = 2;
    run.samples = 4;  // two micro-batches per rank
    run.steps = 3;
    run.kind = GradientKind::Real;
    run.options.stage = stage;
    run.options.reduce_dtype = reduce;
    run.options.gradient_bucket_mb = megabytes;
    return run;
}

constexpr std::uint64_t seeds = 4;

TEST_CASE("Late streams change no bit: every producer, bucket and gather is waited for", "[threads]") {
    const auto params = tied_model();
    for (const int stage : {0, 1, 2, 3}) {
        for (const DType reduce : {DType::F32, DType::BF16}) {
            for (const int producers : {1, 2, 3}) {
                ZeroRun run = late_run(stage, reduce, producers == 2 ? 0.0012 : 0.0);
                run.kind = producers == 2 ? GradientKind::Whole : GradientKind::Real;
                run.options.compute = producers == 1 ? DType::BF16 : DType::F32;
                run.options.overlap = producers < 3;
                const ZeroResult punctual = run_zero(params, run);
                run.producers = producers;
                for (std::uint64_t seed = 0; seed < seeds; ++seed) {
                    run.on.late_seed = seed;
                    const ZeroResult late = run_zero(params, run);
                    CHECK(late.defects == std::vector<std::string>{});
                    CHECK(late.state == punctual.state);
                    CHECK(late.steps == punctual.steps);
                }
            }
        }
    }
}

TEST_CASE("A backward pass whose gradients are never used leaves no trace", "[threads]") {
    const auto params = tied_model();
    for (const int stage : {0, 1, 2, 3}) {
        ZeroRun run = late_run(stage, DType::F32, 0.0);
        run.kind = GradientKind::Whole;
        const ZeroResult expected = run_zero(params, run);
        run.abandon = true;
        for (std::uint64_t seed = 0; seed < seeds; ++seed) {
            run.on.late_seed = seed;
            const ZeroResult result = run_zero(params, run);
            CHECK(result.state == expected.state);
            CHECK(result.steps == expected.steps);
        }
    }
}

TEST_CASE("Late readers of weights on another stream see them as they were before the update", "[threads]") {
    const auto params = tied_model();
    constexpr int ranks = 2;
    for (const int stage : {0, 1, 2, 3}) {
        for (std::uint64_t seed = 0; seed < seeds; ++seed) {
            std::vector<std::vector<std::byte>> before(ranks);
            std::vector<std::vector<std::byte>> seen(ranks);
            RankOptions on;
            on.late_seed = seed;
            on_ranks(
                ranks,
                [&](RankContext& context) {
                    const auto index = static_cast<std::size_t>(context.rank);
                    ZeroOptions options;
                    options.stage = stage;
                    const auto zero =
                        make_zero_state(context.device, context.ops, {context.data}, context.compute,
                                        context.communication, params, options);
                    zero->initialise(1);
                    const auto copy = [&](std::vector<std::byte>& to, Stream& stream) {
                        const TensorView weights = zero->params().acquire(0, stream).flat();
                        to.resize(weights.bytes());
                        context.device.copy(stream, to.data(), weights.data, weights.bytes());
                        zero->params().release(0, stream);
                    };
                    copy(before[index], context.compute);
                    context.compute.synchronize();
                    const auto side = context.device.make_stream("side", StreamRole::Communication);
                    copy(seen[index], *side);
                    zero->grads().begin_micro(0, 0, MicroKind::Last);
                    synthetic_backward(params, unit_layouts(params, ranks), zero->params(), zero->grads(),
                                       {&context.compute}, {}, context.rank, FirstUse::Early);
                    const Buffer scalars =
                        context.device.allocate(step_scalars * sizeof(double), Memory::Device, "scalars");
                    UpdateSettings settings;
                    settings.lr = 0.1;
                    zero->update(scalars.view(Shape{step_scalars}, DType::F64), settings);
                    context.compute.synchronize();
                    context.communication.synchronize();
                    side->synchronize();
                },
                on);
            CHECK(seen == before);
        }
    }
}

// What one rank saw of the weights of every unit, in the order in which it read them, over forward and
// backward passes with updates between. The last gather before each update is never read: the update must
// wait for it all the same, which only ThreadSanitizer can see.
std::vector<std::vector<std::byte>> read_weights(RankContext& context, const std::vector<ParamSpec>& params) {
    ZeroOptions options;
    options.stage = 3;
    const auto zero = make_zero_state(context.device, context.ops, {context.data}, context.compute,
                                      context.communication, params, options);
    zero->initialise(1);
    const auto units = static_cast<UnitId>(unit_layouts(params, 1).size());
    constexpr int steps = 3;
    std::vector<std::vector<std::byte>> seen(static_cast<std::size_t>(2 * steps * units));
    std::size_t reads = 0;
    const auto read = [&](UnitId unit, UnitId next) {
        const TensorView weights = zero->params().acquire(unit, context.compute).flat();
        if (next >= 0 && next < units) zero->params().hint(next);
        std::vector<std::byte>& to = seen[reads++];
        to.resize(weights.bytes());
        context.device.copy(context.compute, to.data(), weights.data, weights.bytes());
        zero->params().release(unit, context.compute);
    };
    const Buffer scalars = context.device.allocate(step_scalars * sizeof(double), Memory::Device, "scalars");
    for (int step = 0; step < steps; ++step) {
        for (UnitId unit = 0; unit < units; ++unit) read(unit, unit + 1);
        for (UnitId unit = units - 1; unit >= 0; --unit) read(unit, unit - 1);
        zero->grads().begin_micro(0, 0, MicroKind::Last);
        synthetic_backward(params, unit_layouts(params, context.data.size()), zero->params(), zero->grads(),
                           {&context.compute}, {}, context.rank, FirstUse::InOrder);
        zero->params().hint(4);
        UpdateSettings settings;
        settings.lr = 0.1;
        settings.applied_updates = step;
        zero->update(scalars.view(Shape{step_scalars}, DType::F64), settings);
    }
    context.compute.synchronize();
    context.communication.synchronize();
    return seen;
}

TEST_CASE("A slot is not filled with another unit's weights before its late reader is done", "[threads]") {
    std::mt19937 random(9);
    const auto params = random_params(random, 8, 300);
    using Seen = std::vector<std::vector<std::vector<std::byte>>>;  // by rank
    const auto run = [&](RankOptions on) {
        Seen seen(2);
        on_ranks(
            2,
            [&](RankContext& context) {
                seen[static_cast<std::size_t>(context.rank)] = read_weights(context, params);
            },
            on);
        return seen;
    };
    const Seen punctual = run({});
    CHECK(punctual[0] == punctual[1]);
    CHECK(punctual[0].front() != punctual[0].back());  // the updates did something
    for (std::uint64_t seed = 0; seed < seeds; ++seed) {
        RankOptions on;
        on.late_seed = seed;
        CHECK(run(on) == punctual);
    }
}

// No [threads]: the race is the point, and ThreadSanitizer would find it as well.
TEST_CASE("Late streams find a producer that is not waited for") {
    const auto params = tied_model();
    for (const int stage : {0, 1, 2, 3}) {
        ZeroRun run = late_run(stage, DType::F32, 0.0);
        run.first = FirstUse::InOrder;
        const ZeroResult right = run_zero(params, run);
        run.producers = 3;
        run.announce = Announce::Elsewhere;
        run.on.late_seed = 0;
        CHECK(run_zero(params, run).state != right.state);
    }
}

}  // namespace
}  // namespace trainctl::test
