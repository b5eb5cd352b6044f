// Trainings whose checkpoints are on the disks of nodes, with copies made behind them.
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <set>
#include <thread>

#include "support/catch.h"
#include "support/gated_file_system.h"
#include "support/manual_clock.h"
#include "support/memory_file_system.h"
#include "support/node_file_system.h"
#include "train/train_harness.h"
#include "trainctl/checkpoint/scan.h"

using namespace trainctl;
using namespace trainctl::test;
using Catch::Matchers::Contains;

namespace {

constexpr const char* local_root = "nvme/ck";
constexpr const char* shared_root = "shared/ck";
constexpr const char* shared_tier = "shared:/ck";

// Two ranks on two nodes; saves go to their disks, copies to shared storage.
struct TwoNodes {
    MemoryFileSystem shared;
    GatedFileSystem gate{shared};
    std::array<MemoryFileSystem, 2> disks;
    NodeFileSystem first{gate, disks[0], "nvme"};
    NodeFileSystem second{gate, disks[1], "nvme"};
    TrainSetup setup;

    TwoNodes() {
        setup.job = tiny_job(Architecture::Llama);
        setup.job.steps = 10;
        setup.job.memory.zero_stage = 3;
        setup.job.checkpoint.async = true;
        setup.job.checkpoint.interval_steps = 4;
        setup.job.checkpoint.tiers = {"local:/nvme/ck", shared_tier};
        setup.ranks = 2;
        setup.files_of = [this](int rank) -> FileSystem& { return rank == 0 ? first : second; };
        setup.root = local_root;
        setup.reach = Reach::Node;
        setup.nodes = Nodes({0, 1});
        setup.copies = {{CopyTarget::Kind::Place, {shared_tier, shared_root, Reach::Everybody}}};
    }

    TrainOutcome resume() {
        setup.resume = ResumeMode::Auto;
        setup.attempt = 2;
        setup.at_boundary = {};
        return train(setup);
    }
};

std::vector<std::int64_t> steps_in(FileSystem& files, const std::string& root,
                                   Require require = Require::AllFiles) {
    std::vector<std::int64_t> steps;
    for (const CompleteCheckpoint& found : scan_checkpoints(files, root, "", require).complete)
        steps.push_back(found.name.step);
    std::sort(steps.begin(), steps.end());
    return steps;
}

// The step of this name and all later ones are gone from a root.
void forget_after(MemoryFileSystem& files, const std::string& root, std::int64_t step) {
    for (const std::string& name : files.list(root)) {
        const auto parsed = parse_checkpoint_directory_name(name);
        if (parsed && parsed->step > step) files.erase(join_path(root, name));
    }
}

}  // namespace

TEST_CASE("the last checkpoint of a training is in every place, and resumes from each", "[threads]") {
    TwoNodes nodes;
    const TrainOutcome whole = train(nodes.setup);
    CHECK(steps_in(nodes.disks[0], local_root, Require::Markers).back() == 10);
    CHECK(steps_in(nodes.shared, shared_root).back() == 10);
    REQUIRE_FALSE(whole.copies.empty());
    CHECK(whole.copies.back().step == 10);
    CHECK(whole.copies.back().error.empty());
    CHECK(whole.copies.back().bytes == whole.saves.back().bytes);

    const bool from_copies = GENERATE(false, true);
    for (MemoryFileSystem& disk : nodes.disks) {
        if (from_copies) disk.erase("nvme");
        if (!from_copies) forget_after(disk, local_root, 4);
    }
    if (!from_copies) nodes.shared.erase("shared");
    if (from_copies && steps_in(nodes.shared, shared_root).front() < 10)
        forget_after(nodes.shared, shared_root, steps_in(nodes.shared, shared_root).front());
    const TrainOutcome rest = nodes.resume();
    CHECK(rest.state == whole.state);
}

TEST_CASE("training does not wait for a slow place, which gets the newest when it is ready", "[threads]") {
    TwoNodes nodes;
    nodes.setup.job.steps = 100000;
    nodes.gate.close_gate(".st");
    std::set<std::int64_t> saved;  // while the first copy stands still
    nodes.setup.at_boundary = [&](int rank, StopFlag& stop, std::int64_t /*step*/) {
        if (rank != 0 || stop.stop_requested() || !nodes.gate.somebody_waits()) return;
        saved.insert(steps_in(nodes.disks[0], local_root, Require::Markers).back());
        // The newest may not have been offered yet, and the first may be the one that is being copied.
        if (saved.size() < 4) return;
        nodes.gate.open_gate();
        stop.request_stop();
    };
    const TrainOutcome outcome = train(nodes.setup);
    CHECK(outcome.exit == Exit::Interrupted);
    CHECK(steps_in(nodes.shared, shared_root).front() <= *saved.begin());
    CHECK(steps_in(nodes.shared, shared_root).back() == outcome.progress.step);
    CHECK(outcome.copies.back().left_out > 0);
}

TEST_CASE("a place that takes no copies is an alarm until what counts as saved is too old", "[threads]") {
    const bool fatal = GENERATE(false, true);
    TwoNodes nodes;
    ManualClock clock;
    nodes.setup.clock = &clock;
    nodes.setup.job.steps = 40;
    nodes.setup.job.checkpoint.interval_s = 1000.0;
    nodes.setup.job.checkpoint.max_age_s = 3000.0;
    nodes.shared.set_capacity(100);
    nodes.setup.at_boundary = [&](int rank, StopFlag& /*stop*/, std::int64_t step) {
        if (rank == 0 && fatal && step > 20) clock.advance(200.0);
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    };
    if (!fatal) {
        const TrainOutcome outcome = train(nodes.setup);
        CHECK(outcome.exit == Exit::Ok);
        CHECK_THAT(outcome.copies.back().error, Contains("No space left"));
        return;
    }
    try {
        train(nodes.setup);
        FAIL("it was trained to the end");
    } catch (const Error& error) {
        CHECK(error.code() == Exit::Resource);
        CHECK_THAT(error.what(), Contains("has come to shared:/ck, which counts as saved"));
        CHECK_THAT(error.what(), Contains("No space left"));
    }
    CHECK(steps_in(nodes.disks[1], local_root, Require::Markers).back() > 20);
}

TEST_CASE("a lost node is made good from the copies on the next node", "[threads]") {
    const std::size_t lost = GENERATE(std::size_t{0}, std::size_t{1});
    TwoNodes nodes;
    nodes.setup.job.checkpoint.tiers = {"local:/nvme/ck"};
    nodes.setup.copies = {{CopyTarget::Kind::NextNode, {"the next node", local_root, Reach::Node}}};
    const TrainOutcome whole = train(nodes.setup);
    REQUIRE(whole.copies.back().step == 10);
    CHECK(whole.copies.back().error.empty());
    nodes.disks[lost].erase("nvme");
    const TrainOutcome rest = nodes.resume();
    CHECK(rest.steps.empty());
    CHECK(rest.state == whole.state);
}

TEST_CASE("copies are given up with the training that fails", "[threads]") {
    TwoNodes nodes;
    nodes.setup.job.steps = 400;
    nodes.gate.close_gate(".st");
    nodes.setup.at_boundary = [&](int rank, StopFlag& /*stop*/, std::int64_t step) {
        if (rank != 0 || step < 4) return;
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        if (nodes.gate.somebody_waits()) fail(Exit::Peer, "on purpose");
    };
    nodes.setup.after_error = [&](int rank, RunCheckpoints& checkpoints) {
        if (rank != 0) return;
        checkpoints.give_up(std::chrono::milliseconds(20));
        nodes.gate.open_gate();
    };
    CHECK_THROWS_AS(train(nodes.setup), Error);
    CHECK(steps_in(nodes.shared, shared_root).empty());
    CHECK(steps_in(nodes.disks[0], local_root, Require::Markers).front() == 4);
}
