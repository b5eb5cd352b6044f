// Non-finite steps, stops, slow data: what a run does when something is not as it should be.
#include <malloc.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <thread>

#include "support/catch.h"
#include "support/memory_file_system.h"
#include "support/temporary_directory.h"
#include "train/check_outcomes.h"
#include "train/finite_stream.h"
#include "train/meddled_state.h"
#include "train/train_harness.h"
#include "trainctl/checkpoint/scan.h"
#include "trainctl/train/synthetic_stream.h"

using namespace trainctl;
using namespace trainctl::test;

namespace {

// Puts a NaN into one gradient of one rank in chosen steps.
std::function<TrainingHooks(int)> poison(int poisoned_rank, const std::vector<std::int64_t>& steps) {
    return [poisoned_rank, steps](int rank) {
        TrainingHooks hooks;
        if (rank == poisoned_rank) {
            hooks.wrap_state = [steps](std::unique_ptr<ZeroState> real) {
                return std::make_unique<MeddledState>(
                    std::move(real), 1, [steps](TensorView grads, std::int64_t step) {
                        if (std::find(steps.begin(), steps.end(), step) != steps.end())
                            grads.as<float>()[5] = std::numeric_limits<float>::quiet_NaN();
                    });
            };
        }
        return hooks;
    };
}

}  // namespace

TEST_CASE("a NaN on one rank skips the update on all, is counted and shown, and training goes on") {
    for (const int stage : {0, 1, 2}) {
        TrainSetup setup;
        setup.job = tiny_job(Architecture::Llama);
        setup.job.memory.zero_stage = stage;
        setup.job.steps = 8;
        setup.ranks = 4;
        setup.hooks = poison(2, {3});
        const TrainOutcome outcome = train(setup);
        INFO("stage " << stage);
        CHECK(outcome.exit == Exit::Ok);
        REQUIRE(outcome.steps.size() == 8);
        CHECK_FALSE(outcome.steps[3].applied);
        CHECK(std::isnan(outcome.steps[3].grad_norm));
        CHECK(outcome.progress.skipped == 1);
        CHECK(outcome.progress.applied_updates == 7);
        for (const std::size_t step : {0U, 1U, 2U, 4U, 5U, 6U, 7U}) CHECK(outcome.steps[step].applied);
        for (const auto& [name, values] : outcome.state) {
            INFO(name);
            CHECK(
                std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); }));
        }
    }
}

TEST_CASE("a skipped update leaves every weight and moment untouched") {
    TrainSetup setup;
    setup.job = tiny_job(Architecture::Llama);
    setup.ranks = 2;
    setup.steps = 3;
    const TrainOutcome before = train(setup);
    setup.steps = 4;
    setup.hooks = poison(1, {3});
    const TrainOutcome after = train(setup);
    CHECK(after.progress.skipped == 1);
    CHECK(after.state == before.state);
}

TEST_CASE("too many non-finite steps end the run as diverged, with the numbers") {
    TrainSetup setup;
    setup.job = tiny_job(Architecture::Llama);
    setup.job.fault_tolerance.nonfinite_max_consecutive = 2;
    setup.ranks = 2;
    setup.hooks = poison(1, {2, 3, 4, 5});
    try {
        train(setup);
        FAIL("went on");
    } catch (const Error& error) {
        CHECK(error.code() == Exit::Diverged);
        CHECK_THAT(error.what(),
                   Catch::Matchers::Contains("step 5") && Catch::Matchers::Contains("3 non-finite steps"));
    }
    setup.hooks = poison(1, {2});
    setup.job.fault_tolerance.nonfinite = NonFinitePolicy::Stop;
    CHECK_THROWS_AS(train(setup), Error);
}

TEST_CASE("a stop request on one rank stops all at the same step, saved, and the run continues exactly") {
    const auto files = make_posix_file_system();
    TrainSetup setup;
    setup.job = tiny_job(Architecture::Gpt2);
    setup.ranks = 3;
    setup.job.training.global_batch_size = 9;
    setup.job.training.micro_batch_size = 1;
    const TrainOutcome straight = train(setup);
    for (const std::int64_t at : {0, 1, 7}) {
        TemporaryDirectory directory;
        TrainSetup stopped = setup;
        stopped.files = files.get();
        stopped.root = directory / "checkpoints";
        stopped.at_boundary = [at](int rank, StopFlag& stop, std::int64_t step) {
            if (rank == 1 && step == at) stop.request_stop();
        };
        const TrainOutcome first = train(stopped);
        CHECK(first.exit == Exit::Interrupted);
        CHECK(first.progress.step == at);
        stopped.at_boundary = nullptr;
        stopped.resume = ResumeMode::Auto;
        stopped.attempt = 2;
        const TrainOutcome second = train(stopped);
        CHECK(second.exit == Exit::Ok);
        CHECK(second.state == straight.state);
    }
}

TEST_CASE("USR2's save request saves and goes on") {
    const auto files = make_posix_file_system();
    TemporaryDirectory directory;
    TrainSetup setup;
    setup.job = tiny_job(Architecture::Llama);
    setup.ranks = 2;
    setup.files = files.get();
    setup.root = directory / "checkpoints";
    setup.at_boundary = [](int rank, StopFlag& stop, std::int64_t step) {
        if (rank == 1 && step == 6) stop.request_save();
    };
    const TrainOutcome outcome = train(setup);
    CHECK(outcome.exit == Exit::Ok);
    std::vector<std::int64_t> steps;
    for (const std::string& name : files->list(setup.root)) {
        if (const auto parsed = parse_checkpoint_directory_name(name)) steps.push_back(parsed->step);
    }
    CHECK(steps == std::vector<std::int64_t>{6, 20});
}

namespace {

// Sample `stuck` never comes until `release` is set.
class StuckStream final : public SampleStream {
  public:
    StuckStream(const SampleStream& all, std::int64_t stuck, std::atomic<bool>& release)
        : all_(all), stuck_(stuck), release_(release) {}
    [[nodiscard]] std::int64_t sequence_length() const override { return all_.sequence_length(); }
    [[nodiscard]] std::optional<std::int64_t> samples() const override { return std::nullopt; }
    void read(std::int64_t sample, std::span<std::int32_t> window) const override {
        while (sample >= stuck_ && !release_.load())
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        all_.read(sample, window);
    }

  private:
    const SampleStream& all_;
    std::int64_t stuck_;
    std::atomic<bool>& release_;
};

}  // namespace

TEST_CASE("validation of any size gives every layout the same mean") {
    for (const std::int64_t samples : {1, 3, 8, 21}) {
        TrainSetup setup;
        setup.job = tiny_job(Architecture::Llama);
        setup.job.training.eval_interval = 10;
        const ValidationSet validation(setup.job, samples);
        setup.validation = &validation.samples;
        setup.ranks = 1;
        const TrainOutcome one = train(setup);
        setup.ranks = 4;
        const TrainOutcome four = train(setup);
        INFO(samples << " samples");
        REQUIRE(one.evaluations.size() == 2);
        check_evaluations(one, four, 5e-6);
        CHECK(one.evaluations[0] < std::log(97.0));
    }
}

TEST_CASE("evaluating changes nothing of the training, to the bit") {
    TrainSetup setup;
    setup.job = tiny_job(Architecture::Gpt2);
    const ValidationSet validation(setup.job, 10);
    setup.ranks = 2;
    const TrainOutcome without = train(setup);
    setup.job.training.eval_interval = 3;
    setup.validation = &validation.samples;
    const TrainOutcome with = train(setup);
    CHECK(with.steps == without.steps);
    CHECK(with.state == without.state);
    CHECK(with.evaluations.size() == 7);
}

TEST_CASE("a stop during validation and while waiting for data saves at the last completed step") {
    const auto files = make_posix_file_system();
    const SyntheticLanguage language(97, 42);
    const SyntheticStream all(language, 16);
    TrainSetup setup;
    setup.job = tiny_job(Architecture::Llama);
    setup.ranks = 2;
    setup.files = files.get();

    SECTION("validation") {
        TemporaryDirectory directory;
        setup.root = directory / "checkpoints";
        // The request arrives while rank 1 reads its validation data.
        struct Trigger final : SampleStream {
            explicit Trigger(const SampleStream& stream) : validation(stream, 64) {}
            [[nodiscard]] std::int64_t sequence_length() const override {
                return validation.sequence_length();
            }
            [[nodiscard]] std::optional<std::int64_t> samples() const override {
                return validation.samples();
            }
            void read(std::int64_t sample, std::span<std::int32_t> window) const override {
                if (armed.load() && stop != nullptr) stop->request_stop();
                validation.read(sample, window);
            }
            FiniteStream validation;
            std::atomic<bool> armed{false};
            StopFlag* stop = nullptr;
        } trigger(all);
        setup.job.training.eval_interval = 4;
        setup.validation = &trigger;
        setup.job.data.prefetch_batches = 0;
        setup.at_boundary = [&trigger](int rank, StopFlag& stop, std::int64_t step) {
            if (rank != 1) return;
            trigger.stop = &stop;
            if (step == 7) trigger.armed = true;
        };
        const TrainOutcome outcome = train(setup);
        CHECK(outcome.exit == Exit::Interrupted);
        CHECK(outcome.progress.step == 8);
        CHECK(outcome.evaluations.size() == 1);
        CHECK(files->list(setup.root).size() == 1);
    }
    SECTION("data") {
        TemporaryDirectory directory;
        setup.root = directory / "checkpoints";
        std::atomic<bool> release{false};
        const StuckStream stuck(all, 5 * 8, release);
        setup.data = &stuck;
        std::thread operator_thread;
        std::atomic<int> arrived{0};
        setup.at_boundary = [&](int rank, StopFlag& stop, std::int64_t step) {
            if (step != 5) return;
            arrived.fetch_add(1);
            // Both ranks are told, as mpirun forwards the signal, some time after they began to wait.
            std::thread([&stop] {
                std::this_thread::sleep_for(std::chrono::milliseconds(100));
                stop.request_stop();
            }).detach();
            (void)rank;
        };
        std::thread unblock([&] {
            while (arrived.load() < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
            std::this_thread::sleep_for(std::chrono::milliseconds(400));
            release = true;  // only so that the loader's thread can end
        });
        const TrainOutcome outcome = train(setup);
        unblock.join();
        CHECK(outcome.exit == Exit::Interrupted);
        CHECK(outcome.progress.step == 5);
    }
}

TEST_CASE("a thousand steps neither grow the heap nor allocate device memory") {
    TrainSetup setup;
    setup.job = tiny_job(Architecture::Llama);
    setup.job.model.layers = 1;
    setup.job.training.micro_batch_size = 1;
    setup.job.training.global_batch_size = 2;
    setup.job.steps = 1060;
    std::size_t before = 0;
    std::size_t after = 0;
    setup.at_boundary = [&](int /*rank*/, StopFlag& /*stop*/, std::int64_t step) {
        if (step == 50) before = mallinfo2().uordblks + mallinfo2().hblkhd;
        if (step == 1050) after = mallinfo2().uordblks + mallinfo2().hblkhd;
    };
    const TrainOutcome outcome = train(setup);
    CHECK(outcome.device_allocations_after_first_step == 0);
    REQUIRE(before > 0);
    INFO("heap " << before << " -> " << after);
    CHECK(after < before + 16 * 1024);
}

namespace {

// Cannot be read from some sample on, as a file that was cut.
struct CutStream final : SampleStream {
    CutStream(const SampleStream& stream, std::int64_t first_bad) : stream_(stream), first_bad_(first_bad) {}
    [[nodiscard]] std::int64_t sequence_length() const override { return stream_.sequence_length(); }
    [[nodiscard]] std::optional<std::int64_t> samples() const override { return stream_.samples(); }
    void read(std::int64_t sample, std::span<std::int32_t> window) const override {
        if (sample >= first_bad_) fail(Exit::BadInput, "the file was cut");
        stream_.read(sample, window);
    }
    const SampleStream& stream_;
    std::int64_t first_bad_;
};

}  // namespace

TEST_CASE("data that cannot be read any more end a run after its last finished step was saved") {
    const SyntheticLanguage language(97, 42);
    const SyntheticStream all(language, 16);
    for (const int ranks : {1, 2}) {
        // Sample 5 x 8 + 5: not the first micro-batch of its step, and with two ranks only the second one's.
        for (const std::int64_t bad : {40, 45}) {
            for (const bool room : {true, false}) {
                INFO(ranks << " ranks, sample " << bad << ", room " << room);
                MemoryFileSystem files;
                const CutStream cut(all, bad);
                TrainSetup setup;
                setup.job = tiny_job(Architecture::Llama);
                setup.job.steps = 12;
                setup.job.checkpoint.interval_steps = 3;
                setup.ranks = ranks;
                setup.files = &files;
                setup.root = "checkpoints";
                setup.data = &all;
                const TrainOutcome straight = train(setup);
                files.erase("checkpoints");
                setup.data = &cut;
                setup.at_boundary = [&](int rank, StopFlag& /*stop*/, std::int64_t step) {
                    if (rank == 0 && step == 5 && !room) files.set_capacity(1000);
                };
                try {
                    train(setup);
                    FAIL("went on");
                } catch (const Error& error) {
                    CHECK(error.code() == Exit::BadInput);
                    CHECK(error.scope() == Scope::Shared);
                    using Catch::Matchers::Contains;
                    CHECK_THAT(error.what(), Contains("the file was cut") && Contains("--resume auto") &&
                                                 Contains(room ? "that of step 5" : "that of step 3"));
                    if (!room) CHECK_THAT(error.what(), Contains("bytes more"));
                }
                files.set_capacity(UINT64_MAX);
                setup.at_boundary = nullptr;
                setup.data = &all;
                setup.resume = ResumeMode::Auto;
                CHECK(train(setup).state == straight.state);
            }
        }
    }
}

TEST_CASE("validation data that cannot be read end a run in the same way") {
    const SyntheticLanguage language(97, 42);
    const SyntheticStream all(language, 16);
    const FiniteStream validation(all, 64);
    const CutStream cut(validation, 21);
    MemoryFileSystem files;
    TrainSetup setup;
    setup.job = tiny_job(Architecture::Llama);
    setup.job.training.eval_interval = 4;
    setup.ranks = 2;
    setup.files = &files;
    setup.root = "checkpoints";
    setup.validation = &cut;
    try {
        train(setup);
        FAIL("went on");
    } catch (const Error& error) {
        CHECK(error.code() == Exit::BadInput);
        CHECK_THAT(error.what(), Catch::Matchers::Contains("that of step 4"));
    }
}

TEST_CASE("a last save that fails says what is there, how much room it lacks, and how to go on") {
    for (const bool earlier : {false, true}) {
        MemoryFileSystem files;
        TrainSetup setup;
        setup.job = tiny_job(Architecture::Llama);
        setup.job.steps = 6;
        if (earlier) setup.job.checkpoint.interval_steps = 4;
        setup.ranks = 2;
        setup.files = &files;
        setup.root = "checkpoints";
        setup.at_boundary = [&](int rank, StopFlag& /*stop*/, std::int64_t step) {
            if (rank == 0 && step == 5) files.set_capacity(1000);
        };
        try {
            train(setup);
            FAIL("went on");
        } catch (const Error& error) {
            using Catch::Matchers::Contains;
            CHECK(error.code() == Exit::Resource);
            CHECK_THAT(error.what(),
                       Contains("step 6 was not saved") && Contains("bytes more") &&
                           Contains(earlier ? "that of step 4" : "no complete checkpoint in checkpoints"));
        }
    }
}

TEST_CASE("what hinders the last save for a moment does not cost the run") {
    MemoryFileSystem files;
    TrainSetup setup;
    setup.job = tiny_job(Architecture::Llama);
    setup.job.steps = 3;
    setup.files = &files;
    setup.root = "checkpoints";
    files.add_fault({2 /* ENOENT */, FileOp::Create, "MANIFEST", 0, 3, FaultEffect::None});
    CHECK(train(setup).exit == Exit::Ok);
    CHECK(files.list(setup.root).size() == 1);
}

TEST_CASE("nothing is saved while steps are not finite, and weights that are not finite never") {
    MemoryFileSystem files;
    TrainSetup setup;
    setup.job = tiny_job(Architecture::Gpt2);
    setup.job.steps = 12;
    setup.job.checkpoint.interval_steps = 1;
    setup.job.fault_tolerance.nonfinite_max_consecutive = 3;
    setup.ranks = 2;
    setup.files = &files;
    setup.root = "checkpoints";
    const auto saved = [&] {
        std::vector<std::int64_t> steps;
        for (const CompleteCheckpoint& found : scan_checkpoints(files, setup.root, "").complete)
            steps.push_back(found.name.step);
        return steps;
    };

    // From step 5 (counted from 0) on every gradient is bad: the last good state stays the newest.
    setup.hooks = poison(1, {5, 6, 7, 8, 9, 10, 11});
    CHECK_THROWS_WITH(train(setup),
                      Catch::Contains("nothing was saved since") && Catch::Contains("of step 5"));
    CHECK(saved() == std::vector<std::int64_t>{5, 4, 3, 2, 1});

    // An update of finite gradients that is far too large.
    MemoryFileSystem others;
    setup.files = &others;
    setup.hooks = nullptr;
    make_updates_far_too_large(setup.job);
    try {
        train(setup);
        FAIL("should have diverged");
    } catch (const Error& error) {
        CHECK(error.code() == Exit::Diverged);
        CHECK_THAT(error.what(), Catch::Contains("are not finite, so they are not saved"));
    }
    CHECK(scan_checkpoints(others, setup.root, "").complete.empty());
}

TEST_CASE("a checkpoint is good once 200 finite steps have followed it") {
    MemoryFileSystem files;
    TrainSetup setup;
    setup.job = tiny_job(Architecture::Llama);
    setup.job.steps = 250;
    setup.job.checkpoint.interval_steps = 20;
    setup.files = &files;
    setup.root = "checkpoints";
    setup.hooks = poison(0, {25});  // starts the count of step 20's anew
    train(setup);
    std::map<std::int64_t, Health> found;
    for (const CompleteCheckpoint& checkpoint : scan_checkpoints(files, setup.root, "").complete)
        found[checkpoint.name.step] = checkpoint.manifest.health;
    CHECK(found.size() == 13);
    for (const auto& [step, health] : found) {
        INFO("step " << step);
        CHECK((health == Health::Good) == (step <= 40));  // 26 + 200 and 40 + 200 are within 250
    }
}
