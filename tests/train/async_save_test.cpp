// Saves that are written while training goes on: what they hold, what they cost, and how they end.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <thread>

#include "support/catch.h"
#include "support/gated_file_system.h"
#include "support/manual_clock.h"
#include "support/memory_file_system.h"
#include "train/train_harness.h"
#include "trainctl/checkpoint/scan.h"

using namespace trainctl;
using namespace trainctl::test;
using Catch::Matchers::Contains;

namespace {

constexpr const char* root = "checkpoints";
constexpr const char* payload = ".st";

TrainSetup setup_in(FileSystem& files) {
    TrainSetup setup;
    setup.job = tiny_job(Architecture::Llama);
    setup.job.steps = 10;
    setup.job.checkpoint.async = true;
    setup.job.checkpoint.interval_steps = 4;
    setup.files = &files;
    setup.root = root;
    return setup;
}

std::vector<std::int64_t> complete_steps(FileSystem& files) {
    std::vector<std::int64_t> steps;
    for (const CompleteCheckpoint& found : scan_checkpoints(files, root, "").complete)
        steps.push_back(found.name.step);
    std::sort(steps.begin(), steps.end());
    return steps;
}

bool says(const TrainOutcome& outcome, const std::string& start) {
    return std::any_of(outcome.log.begin(), outcome.log.end(),
                       [&](const std::string& line) { return line.starts_with(start); });
}

// Two ranks whose first save stops in front of its files.
struct Held {
    MemoryFileSystem files;
    GatedFileSystem disk{files};
    TrainSetup setup = setup_in(disk);

    Held() {
        setup.ranks = 2;
        disk.close_gate(payload);
    }
};

std::thread open_later(GatedFileSystem& disk, std::chrono::milliseconds delay) {
    return std::thread([&disk, delay] {
        std::this_thread::sleep_for(delay);
        disk.open_gate();
    });
}

// The first save reaches its files, which are opened only at the boundary of step `opened`.
void hold_first_save(TrainSetup& setup, GatedFileSystem& disk, std::int64_t opened) {
    disk.close_gate(payload);
    setup.at_boundary = [&disk, opened](int rank, StopFlag& /*stop*/, std::int64_t step) {
        if (rank == 0 && step == opened) {
            disk.await_arrival();
            disk.open_gate();
        }
    };
}

}  // namespace

TEST_CASE("what is written behind later steps is the state of its own step, to the bit", "[threads]") {
    for (const int ranks : {1, 2}) {
        for (const int stage : {0, 3}) {
            for (const DType compute : {DType::F32, DType::BF16}) {
                INFO(ranks << " ranks, ZeRO " << stage << ", " << dtype_name(compute));
                MemoryFileSystem files;
                GatedFileSystem disk(files);
                TrainSetup setup = setup_in(disk);
                setup.ranks = ranks;
                setup.job.memory.zero_stage = stage;
                setup.job.precision.compute = compute;
                hold_first_save(setup, disk, 9);
                const TrainOutcome whole = train(setup);
                // Step 8 came while step 4 was being written.
                CHECK(complete_steps(files) == std::vector<std::int64_t>{4, 10});
                CHECK(says(whole, "step 8 is not saved: the checkpoint of step 4 is still being written"));
                REQUIRE(whole.saves.size() == 2);
                CHECK(whole.saves[0].step == 4);
                CHECK(whole.saves[1].skipped == 1);
                CHECK(whole.device_allocations_after_first_step == 0);

                for (const std::string& name : files.list(root))
                    if (name.starts_with("s000000010")) files.erase(join_path(root, name));
                setup.at_boundary = {};
                setup.resume = ResumeMode::Auto;
                setup.attempt = 2;
                const TrainOutcome rest = train(setup);
                REQUIRE(rest.steps.size() == 6);
                CHECK(std::equal(rest.steps.begin(), rest.steps.end(), whole.steps.begin() + 4));
                CHECK(rest.state == whole.state);
            }
        }
    }
}

TEST_CASE("with streams as late as they may be, a save still holds its own step", "[threads]") {
    for (const std::uint64_t seed : {0U, 1U, 7U}) {
        MemoryFileSystem files;
        TrainSetup setup = setup_in(files);
        setup.ranks = 2;
        setup.late_seed = seed;
        setup.job.checkpoint.interval_steps = 1;
        const TrainOutcome whole = train(setup);
        const std::vector<std::int64_t> steps = complete_steps(files);
        REQUIRE(!steps.empty());
        for (const std::string& name : files.list(root))
            if (parse_checkpoint_directory_name(name)->step != steps.front())
                files.erase(join_path(root, name));
        setup.resume = ResumeMode::Auto;
        setup.attempt = 2;
        CHECK(train(setup).state == whole.state);
    }
}

TEST_CASE("a save that fails behind the training is an alarm, and the next one is made", "[threads]") {
    MemoryFileSystem files;
    TrainSetup setup = setup_in(files);
    setup.ranks = 2;
    setup.job.steps = 80;
    files.add_fault({ENOSPC, FileOp::Write, "r00000", 0, 3});  // the file and both rewrites
    // Steps take their time until the next save is there, however busy the machine is.
    setup.at_boundary = [&](int rank, StopFlag& /*stop*/, std::int64_t step) {
        if (rank == 0 && step > 4 && complete_steps(files).empty())
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
    };
    const TrainOutcome outcome = train(setup);
    CHECK(outcome.exit == Exit::Ok);
    CHECK(says(outcome, "checkpoint at step 4 failed, training goes on"));
    REQUIRE(!outcome.saves.empty());
    CHECK(outcome.saves.front().step == 4);
    CHECK_THAT(outcome.saves.front().error, Contains("No space left"));
    CHECK(outcome.saves[1].error.empty());
    CHECK(outcome.saves[1].step < 80);
    CHECK(outcome.saves.back().step == 80);
    CHECK(outcome.saves.back().error.empty());
}

TEST_CASE("a save is not left out because of one that ended during the step", "[threads]") {
    Held held;
    TrainSetup& setup = held.setup;
    setup.job.steps = 9;
    // The save of step 4 ends after the agreement before step 8, and before the next one.
    setup.at_boundary = [&](int rank, StopFlag& /*stop*/, std::int64_t step) {
        if (step != 8) return;
        if (rank == 0) held.disk.open_gate();
        while (complete_steps(held.files).empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        std::this_thread::sleep_for(std::chrono::milliseconds(200));  // what follows COMMIT
    };
    const TrainOutcome outcome = train(setup);
    CHECK(complete_steps(held.files) == std::vector<std::int64_t>{4, 8, 9});
    CHECK(outcome.saves.back().skipped == 0);
}

TEST_CASE("a save that failed is tried again soon when saves are due by steps", "[threads]") {
    for (const bool async : {false, true}) {
        MemoryFileSystem files;
        ManualClock clock;
        TrainSetup setup = setup_in(files);
        setup.clock = &clock;
        setup.job.steps = 60;
        setup.job.checkpoint.async = async;
        setup.job.checkpoint.interval_steps = 50;
        setup.job.checkpoint.interval_s = 1e6;
        files.add_fault({ENOSPC, FileOp::Write, "r00000", 0, 3});
        setup.at_boundary = [&](int /*rank*/, StopFlag& /*stop*/, std::int64_t step) {
            if (step > 50) clock.advance(20.0);
            std::this_thread::sleep_for(std::chrono::milliseconds(step > 50 ? 20 : 0));
        };
        const TrainOutcome outcome = train(setup);
        REQUIRE(outcome.saves.size() == 3);
        CHECK(outcome.saves[0].step == 50);
        CHECK_FALSE(outcome.saves[0].error.empty());
        CHECK(outcome.saves[1].error.empty());
        CHECK(outcome.saves[1].step < 60);
        if (!async) CHECK(outcome.saves[1].step == 53);  // a minute later
    }
}

TEST_CASE("the automatic interval begins with five minutes and follows what saves cost", "[threads]") {
    MemoryFileSystem files;
    ManualClock clock;
    TrainSetup setup = setup_in(files);
    setup.clock = &clock;
    setup.job.steps = 15;
    setup.job.checkpoint.async = false;
    setup.job.checkpoint.interval_steps = 0;
    setup.job.checkpoint.interval_s = 0.0;
    setup.at_boundary = [&](int /*rank*/, StopFlag& /*stop*/, std::int64_t step) {
        if (step > 0) clock.advance(30.0);
    };
    const TrainOutcome outcome = train(setup);
    // By this clock saves cost nothing: once a minute, then.
    CHECK(complete_steps(files) == std::vector<std::int64_t>{10, 12, 14, 15});
    CHECK(says(outcome, "checkpoint.interval: every 1m"));
}

TEST_CASE("what one rank alone meets at the end of a save is no failed save", "[threads]") {
    struct LoneFailure final : CheckpointWriter {
        explicit LoneFailure(CheckpointWriter& own) : own_(own) {}
        void begin(const Progress& progress) override { own_.begin(progress); }
        bool busy() override { return own_.busy(); }
        std::optional<SaveReport> finish(double patience_s) override {
            own_.finish(patience_s);
            fail(Exit::Resource, "the device is lost");
        }
        void closed(StepOutcome outcome) override { own_.closed(outcome); }
        std::string newest() override { return own_.newest(); }
        std::string lack_of_room() override { return own_.lack_of_room(); }

      private:
        CheckpointWriter& own_;
    };
    MemoryFileSystem files;
    TrainSetup setup = setup_in(files);
    setup.ranks = 2;
    setup.writer = [](int rank, CheckpointWriter& own) -> std::shared_ptr<CheckpointWriter> {
        if (rank == 0) return nullptr;
        return std::make_shared<LoneFailure>(own);
    };
    try {
        train(setup);
        FAIL("it was trained to the end");
    } catch (const Error& error) {
        CHECK(error.code() == Exit::Resource);
        CHECK(std::string(error.what()) == "the device is lost");
    }
}

TEST_CASE("a save that failed is tried again soon, whatever the interval", "[threads]") {
    for (const bool async : {false, true}) {
        MemoryFileSystem files;
        ManualClock clock;
        TrainSetup setup = setup_in(files);
        setup.clock = &clock;
        setup.job.steps = 60;
        setup.job.checkpoint.async = async;
        setup.job.checkpoint.interval_steps = 0;
        setup.job.checkpoint.interval_s = 1000.0;
        files.add_fault({ENOSPC, FileOp::Write, "r00000", 0, 3});
        setup.at_boundary = [&](int /*rank*/, StopFlag& /*stop*/, std::int64_t step) {
            if (step > 0) clock.advance(step == 1 ? 1000.0 : 10.0);
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        };
        const TrainOutcome outcome = train(setup);
        REQUIRE(outcome.saves.size() == 3);  // that of the end, too
        CHECK_FALSE(outcome.saves[0].error.empty());
        CHECK(outcome.saves[1].error.empty());
        CHECK(outcome.saves[1].step < 60);
        if (!async) CHECK(outcome.saves[1].step == outcome.saves[0].step + 6);  // a minute later
    }
}

TEST_CASE("a save that somebody asked for while another is being written comes after it", "[threads]") {
    Held held;
    GatedFileSystem& disk = held.disk;
    TrainSetup& setup = held.setup;
    setup.job.steps = 60;
    setup.job.checkpoint.interval_steps = 1000;
    setup.at_boundary = [&](int rank, StopFlag& stop, std::int64_t step) {
        if (rank == 1 && (step == 2 || step == 4)) stop.request_save();
        if (rank != 0 || step < 6) return;
        if (step == 6) {
            disk.await_arrival();
            disk.open_gate();
        }
        if (complete_steps(held.files).size() < 2) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    };
    const TrainOutcome outcome = train(setup);
    REQUIRE(outcome.saves.size() == 3);
    CHECK(outcome.saves[0].step == 2);
    CHECK(outcome.saves[1].step >= 6);
    CHECK(outcome.saves[1].step < 60);
    CHECK(outcome.saves[2].step == 60);
}

TEST_CASE("a stop waits for the save under way, then saves its own step", "[threads]") {
    Held held;
    GatedFileSystem& disk = held.disk;
    TrainSetup& setup = held.setup;
    std::thread opener;
    setup.at_boundary = [&](int rank, StopFlag& stop, std::int64_t step) {
        if (rank != 0 || step != 6) return;
        disk.await_arrival();
        stop.request_stop();
        opener = open_later(disk, std::chrono::milliseconds(50));
    };
    const TrainOutcome outcome = train(setup);
    opener.join();
    CHECK(outcome.exit == Exit::Interrupted);
    CHECK(complete_steps(held.files) == std::vector<std::int64_t>{4, 6});
}

TEST_CASE("a training that fails completes the save under way first", "[threads]") {
    Held held;
    GatedFileSystem& disk = held.disk;
    TrainSetup& setup = held.setup;
    setup.at_boundary = [&](int rank, StopFlag& /*stop*/, std::int64_t step) {
        if (step != 6) return;
        if (rank == 0) {
            disk.await_arrival();
            disk.open_gate();
        }
        fail(Exit::Diverged, "on purpose");
    };
    CHECK_THROWS_AS(train(setup), Error);
    CHECK(complete_steps(held.files) == std::vector<std::int64_t>{4});
}

TEST_CASE("after a lost peer nothing is committed behind its back, and nobody waits for it", "[threads]") {
    Held held;
    GatedFileSystem& disk = held.disk;
    TrainSetup& setup = held.setup;
    std::thread opener;
    setup.at_boundary = [&](int rank, StopFlag& /*stop*/, std::int64_t step) {
        if (step != 6) return;
        disk.await_arrival();  // the save needs both ranks to come so far
        if (rank == 0) opener = open_later(disk, std::chrono::milliseconds(100));
        fail(Exit::Peer, "on purpose");
    };
    CHECK_THROWS_AS(train(setup), Error);
    opener.join();
    CHECK(complete_steps(held.files).empty());
}

TEST_CASE("a rank that ends by an error learns that its storage hangs, and need not wait for it",
          "[threads]") {
    Held held;
    TrainSetup& setup = held.setup;
    std::atomic<int> hung = 0;
    setup.at_boundary = [&](int /*rank*/, StopFlag& /*stop*/, std::int64_t step) {
        if (step != 6) return;
        held.disk.await_arrival();
        fail(Exit::Peer, "on purpose");
    };
    setup.after_error = [&](int rank, RunCheckpoints& checkpoints) {
        if (rank != 0) return;
        if (!checkpoints.give_up(std::chrono::milliseconds(20))) ++hung;
        held.disk.open_gate();
        if (!checkpoints.give_up(std::chrono::seconds(60))) ++hung;
    };
    CHECK_THROWS_AS(train(setup), Error);
    CHECK(hung == 1);
    CHECK(complete_steps(held.files).empty());
}

TEST_CASE("a state that is not finite is refused behind the training as well", "[threads]") {
    MemoryFileSystem files;
    TrainSetup setup = setup_in(files);
    setup.ranks = 2;
    setup.job.checkpoint.interval_steps = 1;
    make_updates_far_too_large(setup.job);
    try {
        train(setup);
        FAIL("it was trained to the end");
    } catch (const Error& error) {
        CHECK(error.code() == Exit::Diverged);
        CHECK_THAT(error.what(), Contains("are not finite, so they are not saved"));
    }
    CHECK(complete_steps(files).empty());
}
