// Pipelines train what one rank trains: to the bit, or to rounding where a tied matrix adds the gradients of
// two stages.
#include <limits>

#include "support/catch.h"
#include "support/memory_file_system.h"
#include "train/check_outcomes.h"
#include "train/finite_stream.h"
#include "train/meddled_state.h"
#include "train/train_harness.h"
#include "trainctl/ops/backends.h"

using namespace trainctl;
using namespace trainctl::test;

namespace {

enum class Head { Untied, Tied };

// 5 layers: no number of stages divides them.
JobSpec pipeline_job(Architecture architecture, Head head, std::int64_t micro_batches) {
    JobSpec job = tiny_job(architecture);
    job.model.layers = 5;
    job.model.tie_embeddings = head == Head::Tied;
    job.training.micro_batch_size = 2;
    job.training.global_batch_size = 2 * micro_batches;
    job.steps = 4;
    job.schedule.warmup_steps = 2;
    return job;
}

// On `stages` x `data` ranks; the global batch is given.
TrainOutcome run(JobSpec job, int stages, int data = 1, std::optional<std::uint64_t> late_seed = {}) {
    TrainSetup setup;
    setup.job = std::move(job);
    setup.job.parallel.pipeline_parallel_size = stages;
    setup.ranks = stages * data;
    setup.late_seed = late_seed;
    TrainOutcome outcome = train(setup);
    CHECK(outcome.drifted == std::vector<std::string>{});
    // A late device keeps what was freed while work was pending.
    if (!late_seed) CHECK(outcome.off_plan == std::vector<std::string>{});
    return outcome;
}

}  // namespace

TEST_CASE("1, 2 and 4 stages train the same to the bit, for any number of micro-batches, with dropout") {
    for (const Architecture architecture : {Architecture::Gpt2, Architecture::Llama}) {
        for (const std::int64_t micros : {1, 3, 5}) {
            JobSpec job = pipeline_job(architecture, Head::Untied, micros);
            job.model.dropout = 0.1;
            const TrainOutcome one = run(job, 1);
            CHECK(one.steps.back().loss < one.steps.front().loss);
            for (const int stages : {2, 4}) {
                INFO("stages " << stages << ", micro-batches " << micros);
                check_same(one, run(job, stages));
            }
        }
    }
}

TEST_CASE("a pipeline has every ZeRO stage and data parallel ranks, to the bit") {
    JobSpec job = pipeline_job(Architecture::Llama, Head::Untied, 6);
    for (const int data : {1, 2}) {
        for (const int zero_stage : {0, 1, 2, 3}) {
            INFO("data " << data << ", ZeRO " << zero_stage);
            job.memory.zero_stage = zero_stage;
            job.communication.gradient_bucket_mb = zero_stage % 2 == 0 ? 0.0 : 0.01;
            check_same(run(job, 1, data), run(job, 2, data));
        }
    }
}

TEST_CASE("a tied matrix on both end stages trains alike to rounding and stays one matrix") {
    for (const Architecture architecture : {Architecture::Gpt2, Architecture::Llama}) {
        for (const int zero_stage : {0, 1, 2, 3}) {
            JobSpec job = pipeline_job(architecture, Head::Tied, 4);
            job.steps = 20;
            job.memory.zero_stage = zero_stage;
            const int data = zero_stage < 2 ? 2 : 1;
            const TrainOutcome one = run(job, 1, data);
            for (const int stages : {2, 4}) {
                if (stages * data > 4) continue;
                INFO("stages " << stages << ", ZeRO " << zero_stage);
                check_rounding(one, run(job, stages, data));
            }
        }
    }
}

TEST_CASE("recomputation in a pipeline changes no bit") {
    JobSpec job = pipeline_job(Architecture::Gpt2, Head::Untied, 3);
    job.model.dropout = 0.1;
    const TrainOutcome kept = run(job, 2);
    for (const auto mode : {GradientCheckpointing::Selective, GradientCheckpointing::Full}) {
        job.memory.gradient_checkpointing = mode;
        check_same(kept, run(job, 2));
        job.memory.checkpoint_every_blocks = 2;
        check_same(kept, run(job, 4));
        job.memory.checkpoint_every_blocks = 1;
    }
}

TEST_CASE("bf16 travels between stages without losing a bit") {
    JobSpec job = pipeline_job(Architecture::Llama, Head::Untied, 3);
    job.precision.compute = DType::BF16;
    check_same(run(job, 1), run(job, 3));
}

TEST_CASE("interleaved parts train the same as one stage, to the bit") {
    for (const int zero_stage : {0, 1, 2, 3}) {
        JobSpec job =
            pipeline_job(zero_stage % 2 == 0 ? Architecture::Gpt2 : Architecture::Llama, Head::Untied, 4);
        job.model.dropout = 0.1;
        job.memory.zero_stage = zero_stage;
        const TrainOutcome one = run(job, 1);
        job.parallel.pipeline_schedule = "interleaved";
        job.parallel.virtual_stages = 2;
        check_same(one, run(job, 2));
    }
    for (const int zero_stage : {1, 2, 3}) {
        INFO("ZeRO " << zero_stage);
        JobSpec job = pipeline_job(Architecture::Llama, Head::Tied, 8);
        job.model.layers = 8;
        job.memory.zero_stage = zero_stage;
        const TrainOutcome one = run(job, 1, 2);
        job.parallel.pipeline_schedule = "interleaved";
        job.parallel.virtual_stages = 4;
        check_rounding(one, run(job, 2, 2));
    }
    JobSpec job = pipeline_job(Architecture::Llama, Head::Untied, 8);
    job.memory.zero_stage = 2;
    job.communication.reduce_dtype = DType::BF16;
    const TrainOutcome one = run(job, 1, 2);
    job.parallel.pipeline_schedule = "interleaved";
    job.parallel.virtual_stages = 2;
    check_same(one, run(job, 2, 2));
}

TEST_CASE("streams that run as late as events allow change no bit of a pipeline: no wait is missing") {
    for (const Head head : {Head::Untied, Head::Tied}) {
        JobSpec job = pipeline_job(Architecture::Llama, head, 4);
        job.steps = 2;
        const TrainOutcome prompt = run(job, 2, 2);
        for (const std::uint64_t seed : {0U, 1U, 2U}) {
            INFO("seed " << seed);
            check_same(prompt, run(job, 2, 2, seed));
        }
        job.parallel.pipeline_schedule = "interleaved";
        job.parallel.virtual_stages = 2;
        job.memory.zero_stage = 3;
        job.training.global_batch_size = 8;
        const TrainOutcome interleaved = run(job, 2);
        for (const std::uint64_t seed : {0U, 1U, 2U}) check_same(interleaved, run(job, 2, 1, seed));
    }
}

TEST_CASE("evaluation over stages is the evaluation of one rank") {
    for (const int virtual_stages : {1, 2}) {
        TrainSetup setup;
        setup.job = pipeline_job(Architecture::Llama, Head::Untied, 4);
        setup.job.training.eval_interval = 2;
        const ValidationSet validation(setup.job, 21);  // a short last batch
        setup.validation = &validation.samples;
        const TrainOutcome one = train(setup);
        REQUIRE(one.evaluations.size() == 2);
        setup.job.parallel.virtual_stages = virtual_stages;
        setup.job.parallel.pipeline_schedule = virtual_stages == 1 ? "1f1b" : "interleaved";
        setup.ranks = virtual_stages == 1 ? 4 : 2;
        setup.job.parallel.pipeline_parallel_size = setup.ranks;
        check_same(one, train(setup));
        for (const std::uint64_t seed : {0U, 1U}) {
            setup.late_seed = seed;
            check_same(one, train(setup));
        }
    }
}

TEST_CASE("a checkpoint of any pipeline continues at any other, to the bit where the head is not tied") {
    for (const Head head : {Head::Untied, Head::Tied}) {
        TrainSetup setup;
        setup.job = pipeline_job(Architecture::Gpt2, head, 4);
        setup.job.steps = 9;
        const TrainOutcome straight = train(setup);
        MemoryFileSystem files;
        setup.files = &files;
        setup.root = "checkpoints";
        struct Leg {
            int stages;
            int data;
            std::int64_t until;
        };
        std::vector<TracedStep> steps;
        TrainOutcome last;
        for (const Leg& leg : {Leg{1, 1, 2}, Leg{2, 1, 5}, Leg{4, 1, 7}, Leg{1, 1, 9}}) {
            INFO("stages " << leg.stages << ", up to step " << leg.until);
            setup.job.parallel.pipeline_parallel_size = leg.stages;
            setup.ranks = leg.stages * leg.data;
            setup.steps = leg.until;
            last = train(setup);
            steps.insert(steps.end(), last.steps.begin(), last.steps.end());
            setup.resume = ResumeMode::Auto;
            ++setup.attempt;
        }
        last.steps = steps;
        if (head == Head::Untied)
            check_same(straight, last);
        else
            check_rounding(straight, last);
    }
}

TEST_CASE("a gradient that is not finite on one stage skips the update on all, as on one rank") {
    static constexpr UnitId poisoned_unit = 5;  // of the last stage
    const auto poisoned = [](int stages) {
        TrainSetup setup;
        setup.job = pipeline_job(Architecture::Llama, Head::Untied, 3);
        setup.job.parallel.pipeline_parallel_size = stages;
        setup.ranks = stages;
        setup.hooks = [stages](int rank) {
            TrainingHooks hooks;
            if (rank != stages - 1) return hooks;
            hooks.wrap_state = [](std::unique_ptr<ZeroState> state) -> std::unique_ptr<ZeroState> {
                return std::make_unique<MeddledState>(
                    std::move(state), poisoned_unit, [](TensorView grads, std::int64_t update) {
                        if (update == 1) grads.as<float>()[0] = std::numeric_limits<float>::quiet_NaN();
                    });
            };
            return hooks;
        };
        return train(setup);
    };
    const TrainOutcome one = poisoned(1);
    const TrainOutcome two = poisoned(2);
    REQUIRE(two.steps.size() == 4);
    CHECK(!two.steps[1].applied);
    CHECK(two.steps[2].applied);
    CHECK(two.progress.skipped == 1);
    CHECK(two.state == one.state);
    CHECK(two.steps.back() == one.steps.back());
}

TEST_CASE("what a stage keeps and sends is bounded by the stages, not by the micro-batches") {
    const auto device = make_cpu_device({.threads = 1, .isa = detect_cpu_isa()});
    const auto ops = make_cpu_ops(*device);
    constexpr int stages = 4;
    JobSpec job = pipeline_job(Architecture::Llama, Head::Untied, 8);
    job.model.layers = 8;  // two blocks each
    const auto plan = [&](int stage, std::int64_t micros) {
        BatchLayout layout;
        layout.micro_batch = 2;
        layout.global_batch = 2 * micros;
        return dry_pass(job, {1, 1, stages}, {0, 0, stage}, layout, ops->ops());
    };
    const double tensor_bytes = 2.0 * 16.0 * 32.0 * sizeof(float);
    std::size_t before = SIZE_MAX;
    for (int stage = 0; stage < stages; ++stage) {
        INFO("stage " << stage);
        const DryPass few = plan(stage, 8);
        const DryPass many = plan(stage, 20);
        CHECK(many.activations.peak_bytes == few.activations.peak_bytes);
        CHECK(few.activations.peak_bytes < before);
        before = few.activations.peak_bytes;
        // An activation and a gradient per micro-batch and neighbour, sent or received.
        const int neighbours = stage == 0 || stage == stages - 1 ? 1 : 2;
        CHECK(many.step.message_bytes - few.step.message_bytes == 12.0 * 2.0 * neighbours * tensor_bytes);
    }
}
