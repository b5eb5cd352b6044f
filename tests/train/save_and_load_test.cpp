// What a load gives back before anything else happens, and a disk that is full for a while.
#include <algorithm>

#include "support/catch.h"
#include "support/memory_file_system.h"
#include "train/train_harness.h"

using namespace trainctl;
using namespace trainctl::test;

namespace {

// Steps of the committed checkpoints, ascending.
std::vector<std::int64_t> saved_steps(FileSystem& files, const std::string& root) {
    std::vector<std::int64_t> steps;
    for (const std::string& name : files.list(root)) {
        if (files.status(join_path(join_path(root, name), "COMMIT")))
            steps.push_back(parse_checkpoint_directory_name(name)->step);
    }
    std::sort(steps.begin(), steps.end());
    return steps;
}

}  // namespace

TEST_CASE("weights and both moments are back to the bit before the first step after a load") {
    for (const DType compute : {DType::F32, DType::BF16}) {
        MemoryFileSystem files;
        TrainSetup setup;
        setup.job = tiny_job(Architecture::Gpt2);
        setup.job.precision.compute = compute;
        setup.ranks = 2;
        setup.files = &files;
        setup.root = "checkpoints";
        setup.steps = 6;
        const TrainOutcome saved = train(setup);
        setup.resume = ResumeMode::Auto;
        setup.attempt = 2;
        const TrainOutcome loaded = train(setup);
        CHECK(loaded.steps.empty());
        CHECK(loaded.state == saved.state);
        CHECK(loaded.progress == saved.progress);
        CHECK(std::any_of(loaded.state.begin(), loaded.state.end(),
                          [](const auto& tensor) { return tensor.first.ends_with(".v"); }));
    }
}

TEST_CASE("the learning rate goes on as if nothing had happened, for every schedule and turning point") {
    for (const ScheduleKind kind : {ScheduleKind::Constant, ScheduleKind::Linear, ScheduleKind::Cosine,
                                    ScheduleKind::Polynomial, ScheduleKind::InverseSqrt, ScheduleKind::Wsd}) {
        TrainSetup straight;
        straight.job = tiny_job(Architecture::Llama);
        straight.job.model.layers = 1;
        straight.job.steps = 12;
        straight.job.schedule.kind = kind;
        straight.job.schedule.warmup_steps = 4;
        straight.job.schedule.wsd_decay_steps = 4;
        const TrainOutcome whole = train(straight);
        // In the warm-up, at its end, where wsd begins to decay, before the last step.
        for (const std::int64_t stop : {2, 4, 8, 11}) {
            INFO("schedule " << static_cast<int>(kind) << ", stopped at step " << stop);
            const TrainOutcome rest = train_interrupted(straight, stop);
            REQUIRE(rest.steps.size() == static_cast<std::size_t>(12 - stop));
            CHECK(std::equal(rest.steps.begin(), rest.steps.end(), whole.steps.begin() + stop));
        }
    }
}

TEST_CASE("a disk that is full for a while costs a checkpoint, not the run") {
    MemoryFileSystem files;
    TrainSetup setup;
    setup.job = tiny_job(Architecture::Llama);
    setup.job.steps = 8;
    setup.ranks = 2;
    const TrainOutcome straight = train(setup);
    setup.job.checkpoint.interval_steps = 2;
    setup.files = &files;
    setup.root = "checkpoints";
    setup.at_boundary = [&files](int rank, StopFlag& /*stop*/, std::int64_t step) {
        if (rank != 0) return;
        if (step == 3) files.set_capacity(1000);
        if (step == 5) files.set_capacity(UINT64_MAX);
    };
    const TrainOutcome outcome = train(setup);
    CHECK(outcome.exit == Exit::Ok);
    CHECK(outcome.steps == straight.steps);
    CHECK(saved_steps(files, setup.root) == std::vector<std::int64_t>{2, 6, 8});
    CHECK(std::any_of(outcome.log.begin(), outcome.log.end(), [](const std::string& line) {
        return line.starts_with("checkpoint at step 4 failed, training goes on");
    }));
}
