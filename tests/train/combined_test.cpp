// Tensor, pipeline and data parallel ranks at once: every precision, and what goes wrong on one rank of many.
#include <algorithm>
#include <limits>

#include "support/catch.h"
#include "support/memory_file_system.h"
#include "train/check_outcomes.h"
#include "train/finite_stream.h"
#include "train/meddled_state.h"

using namespace trainctl;
using namespace trainctl::test;

namespace {

struct Layout {
    int data = 1;
    int tensor = 1;
    int pipeline = 1;
    int virtual_stages = 1;
    int zero_stage = 1;

    [[nodiscard]] int ranks() const { return data * tensor * pipeline; }
};

std::string text(const Layout& layout) {
    return "data " + std::to_string(layout.data) + " tensor " + std::to_string(layout.tensor) + " pipeline " +
           std::to_string(layout.pipeline) + " x " + std::to_string(layout.virtual_stages) + " ZeRO " +
           std::to_string(layout.zero_stage);
}

// 4 layers, 38 rows per micro-batch, 4 micro-batches for two data parallel ranks.
JobSpec job_of(Architecture architecture, DType compute = DType::F32) {
    JobSpec job = calm_job(architecture);
    job.model.layers = 4;
    job.model.max_sequence_length = 19;
    job.training.sequence_length = 19;
    job.training.global_batch_size = 16;
    job.precision.compute = compute;
    job.optimizer.epsilon = 1e-5;  // above the rounding of gradients in the first steps: see calm_job()
    job.steps = 6;
    job.schedule.warmup_steps = 2;
    return job;
}

TrainSetup setup_of(const JobSpec& job, const Layout& layout) {
    TrainSetup setup;
    setup.job = job;
    setup.job.parallel.tensor_parallel_size = layout.tensor;
    setup.job.parallel.pipeline_parallel_size = layout.pipeline;
    setup.job.parallel.virtual_stages = layout.virtual_stages;
    setup.job.parallel.pipeline_schedule = layout.virtual_stages > 1 ? "interleaved" : "1f1b";
    setup.job.memory.zero_stage = layout.zero_stage;
    setup.ranks = layout.ranks();
    return setup;
}

TrainOutcome run(const TrainSetup& setup) {
    TrainOutcome outcome = train(setup);
    CHECK(outcome.drifted == std::vector<std::string>{});
    if (!setup.late_seed) CHECK(outcome.off_plan == std::vector<std::string>{});
    for (const auto& steps : outcome.steps_of_rank) CHECK(steps == outcome.steps);
    return outcome;
}

TrainOutcome run(const JobSpec& job, const Layout& layout) { return run(setup_of(job, layout)); }

// Puts `value` into one gradient of `unit` on one rank, at some updates.
std::function<TrainingHooks(int)> poison(int poisoned_rank, UnitId unit, float value,
                                         const std::vector<std::int64_t>& updates) {
    return [=](int rank) {
        TrainingHooks hooks;
        if (rank != poisoned_rank) return hooks;
        hooks.wrap_state = [=](std::unique_ptr<ZeroState> real) {
            return std::make_unique<MeddledState>(
                std::move(real), unit, [=](TensorView grads, std::int64_t update) {
                    if (std::find(updates.begin(), updates.end(), update) != updates.end())
                        grads.as<float>()[5] = value;
                });
        };
        return hooks;
    };
}

constexpr float infinity = std::numeric_limits<float>::infinity();

}  // namespace

TEST_CASE("bf16 and fp16 on every axis: losses within 1e-3 of one rank, norms within 2e-2") {
    for (const DType compute : {DType::BF16, DType::F16}) {
        const JobSpec job =
            job_of(compute == DType::BF16 ? Architecture::Gpt2 : Architecture::Llama, compute);
        const TrainOutcome one = run(job, {});
        CHECK(one.steps.back().loss < one.steps.front().loss - 0.02);
        for (const Layout& layout :
             {Layout{1, 2, 1}, Layout{1, 1, 2}, Layout{1, 2, 2}, Layout{1, 2, 2, 2}, Layout{2, 2, 2, 2, 3}}) {
            INFO((compute == DType::F16 ? "fp16, " : "bf16, ") << text(layout));
            const TrainOutcome other = run(job, layout);
            REQUIRE(other.steps.size() == one.steps.size());
            for (std::size_t index = 0; index < one.steps.size(); ++index) {
                CHECK(other.steps[index].loss == Approx(one.steps[index].loss).epsilon(1e-3));
                CHECK(other.steps[index].grad_norm == Approx(one.steps[index].grad_norm).epsilon(2e-2));
                CHECK(other.steps[index].applied);
                CHECK(other.steps[index].loss_scale == one.steps[index].loss_scale);
            }
        }
    }
}

TEST_CASE(
    "beside tensor parallel ranks stages, interleaving, ZeRO, recomputation and overlap change no bit") {
    for (const DType compute : {DType::BF16, DType::F16}) {
        JobSpec job = job_of(Architecture::Llama, compute);
        job.model.dropout = 0.1;
        job.steps = 2;
        // Stages 2 and 3 add data parallel ranks before micro-batches, stages 0 and 1 after them.
        TrainOutcome kept = run(job, {2, 2, 1, 1, 0});
        job.memory.gradient_checkpointing = GradientCheckpointing::Selective;
        check_same(kept, run(job, {2, 2, 2, 2, 1}));
        kept = run(job, {2, 2, 1, 1, 2});
        job.memory.gradient_checkpointing = GradientCheckpointing::Full;
        check_same(kept, run(job, {2, 2, 2, 2, 3}));
        job.communication.overlap_comm = false;
        check_same(kept, run(job, {2, 2, 2, 2, 3}));
    }
}

TEST_CASE("late streams change no bit of a training on three axes") {
    for (const Layout& layout : {Layout{2, 2, 2, 1, 1}, Layout{2, 2, 2, 2, 3}}) {
        // Tied: both ends of the pipeline add their gradients.
        TrainSetup setup = setup_of(job_of(layout.zero_stage == 1 ? Architecture::Gpt2 : Architecture::Llama,
                                           layout.zero_stage == 1 ? DType::F32 : DType::BF16),
                                    layout);
        setup.job.model.tie_embeddings = true;
        setup.job.steps = 2;
        const TrainOutcome prompt = run(setup);
        for (const std::uint64_t seed : {0U, 1U}) {
            INFO(text(layout) << ", seed " << seed);
            setup.late_seed = seed;
            check_same(prompt, run(setup));
        }
    }
}

TEST_CASE("evaluation on three axes is that of one rank") {
    JobSpec job = job_of(Architecture::Gpt2);
    job.training.eval_interval = 3;
    for (const std::int64_t samples :
         {1, 21}) {  // with less than a sample for some ranks, a short last batch
        const ValidationSet validation(job, samples);
        const auto evaluated = [&](const Layout& layout) {
            TrainSetup setup = setup_of(job, layout);
            setup.validation = &validation.samples;
            return run(setup);
        };
        const TrainOutcome one = evaluated({});
        REQUIRE(one.evaluations.size() == 2);
        for (const Layout& layout : {Layout{2, 2, 2, 1, 2}, Layout{1, 2, 2, 2, 3}}) {
            INFO(samples << " samples, " << text(layout));
            const TrainOutcome other = evaluated(layout);
            check_rounding(one, other);
            check_evaluations(one, other, 2e-6);
            CHECK(other.device_allocations_after_first_step == 0);
        }
    }
}

TEST_CASE("a gradient that is not finite on any one rank of three axes skips the update on all") {
    TrainSetup setup = setup_of(job_of(Architecture::Llama), {2, 2, 2, 1, 2});
    setup.job.steps = 3;
    setup.steps = 1;
    const TrainOutcome before = run(setup);
    for (const int rank : {1, 2, 4, 7}) {
        INFO("rank " << rank);
        // A block of the rank's stage.
        setup.hooks = poison(rank, rank < 4 ? 1 : 4, std::numeric_limits<float>::quiet_NaN(), {1});
        setup.steps = 2;
        const TrainOutcome skipped = run(setup);
        CHECK_FALSE(skipped.steps[1].applied);
        CHECK(skipped.state == before.state);
        CHECK(skipped.progress.skipped == 1);
    }
    setup.steps = 3;
    CHECK(run(setup).steps[2].applied);
}

TEST_CASE("overflows of fp16 are agreed over every axis") {
    JobSpec job = job_of(Architecture::Llama, DType::F16);
    job.precision.loss_scale = {0x1.0p+27, 3, 2, 1.0};
    job.steps = 16;
    const TrainOutcome one = run(job, {});
    CHECK(one.progress.skipped > 2);
    CHECK(one.progress.applied_updates > 2);
    check_same(one, run(job, {1, 1, 2, 2, 1}));
    for (const Layout& layout : {Layout{1, 2, 1, 1, 0}, Layout{2, 2, 2, 1, 3}}) {
        INFO(text(layout));
        const TrainOutcome other = run(job, layout);  // every rank saw the same steps and scales
        CHECK(other.progress.skipped > 2);
        CHECK(other.progress.applied_updates > 2);
    }
    // On one rank alone, at a scale that never overflows by itself.
    job.precision.loss_scale = {1024.0, 2, 1, 1.0};
    job.steps = 6;
    for (const int rank : {1, 2, 4}) {
        INFO("rank " << rank);
        TrainSetup setup = setup_of(job, {2, 2, 2, 1, 1});
        setup.hooks = poison(rank, rank < 4 ? 1 : 4, infinity, {3});
        const TrainOutcome outcome = run(setup);
        std::vector<double> scales;
        for (const TracedStep& step : outcome.steps) scales.push_back(*step.loss_scale);
        CHECK(scales == std::vector<double>{1024, 1024, 2048, 2048, 1024, 1024});
        CHECK_FALSE(outcome.steps[3].applied);
    }
}

TEST_CASE("a stop asked of any one rank of three axes saves on all, and goes on to the bit") {
    const Layout layout{2, 2, 2, 2, 3};
    const TrainOutcome straight = run(job_of(Architecture::Gpt2), layout);
    for (const int stopped : {3, 6}) {
        MemoryFileSystem files;
        TrainSetup setup = setup_of(job_of(Architecture::Gpt2), layout);
        setup.files = &files;
        setup.root = "checkpoints";
        setup.at_boundary = [stopped](int rank, StopFlag& stop, std::int64_t step) {
            if (rank == stopped && step == 2) stop.request_stop();
        };
        const TrainOutcome first = run(setup);
        CHECK(first.exit == Exit::Interrupted);
        CHECK(first.progress.step == 2);
        setup.at_boundary = nullptr;
        setup.resume = ResumeMode::Auto;
        setup.attempt = 2;
        const TrainOutcome second = run(setup);
        CHECK(second.exit == Exit::Ok);
        REQUIRE(second.steps.size() == 4);
        CHECK(std::equal(second.steps.begin(), second.steps.end(), straight.steps.begin() + 2));
        CHECK(second.state == straight.state);
    }
}
