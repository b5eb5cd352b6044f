// Training in fp16: as fp32 within its roundings, overflows agreed and harmless, exact on resume.
#include <algorithm>
#include <cmath>
#include <limits>

#include "support/catch.h"
#include "support/memory_file_system.h"
#include "train/meddled_state.h"
#include "train/train_harness.h"

using namespace trainctl;
using namespace trainctl::test;

namespace {

JobSpec fp16_job(Architecture architecture) {
    JobSpec job = tiny_job(architecture);
    job.precision.compute = DType::F16;
    return job;
}

// Starts far too high and grows soon: overflows at the beginning and again and again later.
JobSpec overflowing_job(Architecture architecture) {
    JobSpec job = fp16_job(architecture);
    job.precision.loss_scale = {0x1.0p+27, 3, 2, 1.0};
    return job;
}

// An infinity in one gradient of one rank at some updates.
std::function<TrainingHooks(int)> overflow(int rank_hit, const std::vector<std::int64_t>& steps) {
    return [rank_hit, steps](int rank) {
        TrainingHooks hooks;
        if (rank != rank_hit) return hooks;
        hooks.wrap_state = [steps](std::unique_ptr<ZeroState> real) {
            return std::make_unique<MeddledState>(
                std::move(real), 1, [steps](TensorView grads, std::int64_t step) {
                    if (std::find(steps.begin(), steps.end(), step) != steps.end())
                        grads.as<float>()[5] = std::numeric_limits<float>::infinity();
                });
        };
        return hooks;
    };
}

std::vector<double> scales(const std::vector<TracedStep>& steps) {
    std::vector<double> found;
    for (const TracedStep& step : steps) found.push_back(step.loss_scale.value());
    return found;
}

std::int64_t lines_with(const TrainOutcome& outcome, const std::string& text) {
    return std::count_if(outcome.log.begin(), outcome.log.end(),
                         [&](const std::string& line) { return line.find(text) != std::string::npos; });
}

}  // namespace

TEST_CASE("twenty steps in fp16 follow fp32: losses within 1e-3, norms within 1e-2, relative") {
    for (const Architecture architecture : {Architecture::Gpt2, Architecture::Llama}) {
        TrainSetup setup;
        setup.job = tiny_job(architecture);
        setup.ranks = 2;
        const TrainOutcome single = train(setup);
        setup.job.optimizer.lr = 0.0;
        setup.job.schedule.min_lr = 0.0;
        const TrainOutcome untrained = train(setup);
        setup.job = fp16_job(architecture);
        const TrainOutcome half = train(setup);
        REQUIRE(half.steps.size() == 20);
        CHECK(half.progress.skipped == 0);
        // What is learnt in these steps is many times what may differ.
        CHECK(std::abs(untrained.steps.back().loss - single.steps.back().loss) > 1e-2);
        for (std::size_t index = 0; index < 20; ++index) {
            INFO("step " << index + 1);
            CHECK(half.steps[index].loss == Approx(single.steps[index].loss).epsilon(1e-3));
            // The norm of the true gradient: nothing of the scale is left in it.
            CHECK(half.steps[index].grad_norm == Approx(single.steps[index].grad_norm).epsilon(1e-2));
            CHECK(half.steps[index].loss_scale == 65536.0);
            CHECK_FALSE(single.steps[index].loss_scale);
        }
        CHECK(half.steps != single.steps);
    }
}

TEST_CASE("fp16 is the same training to the bit in every ZeRO stage, on any threads, with recomputation") {
    TrainSetup setup;
    setup.job = overflowing_job(Architecture::Llama);
    setup.job.training.micro_batch_size = 4;
    setup.job.steps = 16;
    setup.ranks = 2;
    const TrainOutcome reference = train(setup);
    CHECK(reference.progress.skipped > 0);
    CHECK(reference.progress.applied_updates > 0);
    for (const int stage : {0, 2, 3}) {
        INFO("stage " << stage);
        setup.job.memory.zero_stage = stage;
        setup.threads = std::max(1, stage);
        setup.job.memory.gradient_checkpointing =
            stage == 3 ? GradientCheckpointing::Full : GradientCheckpointing::None;
        const TrainOutcome other = train(setup);
        CHECK(other.steps == reference.steps);
        CHECK(other.state == reference.state);
        CHECK(other.progress == reference.progress);
    }
}

TEST_CASE("a scale that is too large backs off on all ranks at the same steps, without touching a weight") {
    TrainSetup setup;
    setup.job = overflowing_job(Architecture::Gpt2);
    setup.job.precision.loss_scale.growth_interval = 1000;
    setup.job.fault_tolerance.nonfinite = NonFinitePolicy::Stop;  // overflows are not what it means
    setup.job.fault_tolerance.nonfinite_max_consecutive = 0;
    setup.job.fault_tolerance.nonfinite_max_per_1000 = 0;
    setup.ranks = 2;
    const TrainOutcome outcome = train(setup);
    CHECK(outcome.exit == Exit::Ok);
    const std::vector<double> found = scales(outcome.steps);
    // The first overflow is forgiven, every later one halves.
    REQUIRE(outcome.progress.skipped >= 3);
    const auto skipped = static_cast<std::size_t>(outcome.progress.skipped);
    for (std::size_t index = 0; index < found.size(); ++index) {
        INFO("step " << index + 1);
        CHECK(outcome.steps[index].applied == (index >= skipped));
        CHECK(std::isfinite(outcome.steps[index].loss));
        CHECK(found[index] ==
              std::ldexp(0x1.0p+27, -static_cast<int>(std::clamp<std::size_t>(index, 1, skipped) - 1)));
    }
    CHECK(outcome.progress.applied_updates == 20 - outcome.progress.skipped);
    CHECK(outcome.progress.consecutive_skips == 0);
    CHECK(outcome.progress.recent_skips.empty());
    REQUIRE(outcome.steps_of_rank.size() == 2);
    CHECK(outcome.steps_of_rank[1] == outcome.steps_of_rank[0]);
    // One line for each change, and one that says that there was none.
    CHECK(lines_with(outcome, " -> ") == outcome.progress.skipped - 1);
    CHECK(lines_with(outcome, "step 1: the gradient overflowed fp16") == 1);
    CHECK(lines_with(outcome, "loss scale stays 134217728 (1 more until it halves)") == 1);
    CHECK(lines_with(outcome, "loss scale 134217728 -> 67108864") == 1);

    // The steps that were skipped changed nothing: the weights are the initial ones, the moments zero.
    setup.steps = 1;
    const TrainOutcome one = train(setup);
    setup.steps = outcome.progress.skipped;
    const TrainOutcome all_skipped = train(setup);
    CHECK(all_skipped.state == one.state);
    for (const auto& [name, values] : all_skipped.state) {
        INFO(name);
        const bool moment = name.ends_with(".m") || name.ends_with(".v");
        CHECK(std::all_of(values.begin(), values.end(),
                          [&](float value) { return moment ? value == 0.0F : std::isfinite(value); }));
    }
}

TEST_CASE("an overflow on one rank alone is an overflow on all") {
    for (const int stage : {0, 1, 2, 3}) {
        INFO("stage " << stage);
        TrainSetup setup;
        setup.job = fp16_job(Architecture::Llama);
        setup.job.memory.zero_stage = stage;
        setup.job.precision.loss_scale = {1024.0, 3, 1, 1.0};
        setup.job.steps = 9;
        setup.ranks = 2;
        setup.hooks = overflow(1, {4});
        const TrainOutcome outcome = train(setup);
        CHECK(scales(outcome.steps) ==
              std::vector<double>{1024, 1024, 1024, 2048, 2048, 1024, 1024, 1024, 2048});
        CHECK(outcome.steps_of_rank[1] == outcome.steps_of_rank[0]);
        CHECK_FALSE(outcome.steps[4].applied);
        CHECK(outcome.progress.applied_updates == 8);
        CHECK(lines_with(outcome, "step 3: loss scale 1024 -> 2048 after 3 updates in a row") == 1);
        CHECK(lines_with(outcome, "loss scale 2048 -> 1024") == 1);
        CHECK(lines_with(outcome, " -> ") == 3);
        setup.hooks = nullptr;
        setup.steps = 4;
        const TrainOutcome before = train(setup);
        setup.hooks = overflow(1, {4});
        setup.steps = 5;
        CHECK(train(setup).state == before.state);
    }
}

TEST_CASE("at the floor of the scale an overflow is divergence") {
    TrainSetup setup;
    setup.job = fp16_job(Architecture::Llama);
    setup.job.precision.loss_scale = {0x1.0p+27, 3, 1, 0x1.0p+26};
    setup.job.fault_tolerance.nonfinite_max_consecutive = 2;
    setup.ranks = 2;
    try {
        train(setup);
        FAIL("went on");
    } catch (const Error& error) {
        CHECK(error.code() == Exit::Diverged);
        // One overflow above the floor, then three at it.
        CHECK_THAT(error.what(), Catch::Matchers::Contains("step 4 at loss scale 67108864") &&
                                     Catch::Matchers::Contains("3 non-finite steps"));
    }
}

TEST_CASE("a run in fp16 interrupted anywhere equals the uninterrupted one to the bit") {
    TrainSetup setup;
    setup.job = overflowing_job(Architecture::Gpt2);
    setup.job.model.dropout = 0.1;
    setup.ranks = 2;
    const TrainOutcome straight = train(setup);
    REQUIRE(straight.steps.size() == 20);
    // What this run has to offer: stops after an overflow that was forgiven, right after a backoff, in the
    // middle of a growth interval, and right after growth.
    const std::vector<double> found = scales(straight.steps);
    std::map<std::string, std::int64_t> stops;
    for (std::size_t index = 1; index + 1 < found.size(); ++index) {
        const bool applied = straight.steps[index].applied;
        const auto stop = static_cast<std::int64_t>(index) + 1;
        if (found[index + 1] < found[index]) stops["backoff"] = stop;
        if (found[index + 1] > found[index]) stops["growth"] = stop;
        if (!applied && found[index + 1] == found[index]) stops["forgiven"] = stop;
        if (applied && straight.steps[index + 1].applied && found[index + 1] == found[index])
            stops["interval"] = stop;
    }
    REQUIRE(stops.size() == 4);
    for (const auto& [what, stop] : stops) {
        INFO(what << ", stopped at step " << stop);
        const TrainOutcome resumed = train_interrupted(setup, stop);
        REQUIRE(resumed.steps.size() == static_cast<std::size_t>(20 - stop));
        CHECK(std::equal(resumed.steps.begin(), resumed.steps.end(), straight.steps.begin() + stop));
        CHECK(resumed.state == straight.state);
        CHECK(resumed.progress == straight.progress);
    }
}

TEST_CASE("a checkpoint without a loss scale is no beginning for fp16, by name") {
    MemoryFileSystem files;
    TrainSetup setup;
    setup.job = tiny_job(Architecture::Llama);
    setup.files = &files;
    setup.root = "checkpoints";
    setup.steps = 2;
    train(setup);
    setup.job.precision.compute = DType::F16;
    setup.resume = ResumeMode::Auto;
    setup.attempt = 2;
    try {
        train(setup);
        FAIL("went on");
    } catch (const Error& error) {
        CHECK(error.code() == Exit::BadInput);
        CHECK_THAT(error.what(), Catch::Matchers::Contains("loss_scale"));
    }
}

TEST_CASE("a run in which no update was applied is divergence, and saved all the same") {
    MemoryFileSystem files;
    TrainSetup setup;
    setup.job = fp16_job(Architecture::Llama);
    setup.job.precision.loss_scale = {0x1.0p+40, 1000, 1, 1.0};
    setup.job.steps = 5;
    setup.ranks = 2;
    setup.files = &files;
    setup.root = "checkpoints";
    for (const auto resume : {std::optional<ResumeMode>{}, std::optional(ResumeMode::Auto)}) {
        setup.resume = resume;
        try {
            train(setup);
            FAIL("went on");
        } catch (const Error& error) {
            CHECK(error.code() == Exit::Diverged);
            CHECK_THAT(error.what(), Catch::Matchers::Contains("0 of 5 steps applied an update") &&
                                         Catch::Matchers::Contains("precision.loss_scale.initial"));
        }
        CHECK(files.list(setup.root).size() == 1);
    }
    // With more steps the scale falls far enough.
    setup.job.steps = 40;
    const TrainOutcome outcome = train(setup);
    CHECK(outcome.exit == Exit::Ok);
    CHECK(outcome.progress.applied_updates > 0);
}
