// A training that begins with the weights of another run is the training that began with those weights.
#include <algorithm>

#include "support/catch.h"
#include "support/memory_file_system.h"
#include "train/train_harness.h"
#include "trainctl/base/error.h"

using namespace trainctl;
using namespace trainctl::test;

namespace {

bool is_weight(const std::string& name) { return !name.ends_with(".m") && !name.ends_with(".v"); }

// Six steps of another job, on two ranks with ZeRO 2, saved in "other".
TrainOutcome train_other(MemoryFileSystem& files, Architecture architecture) {
    TrainSetup other;
    other.job = tiny_job(architecture);
    other.job.seed = 7;
    other.job.memory.zero_stage = 2;
    other.ranks = 2;
    other.files = &files;
    other.root = "other";
    other.steps = 6;
    return train(other);
}

struct Layout {
    int ranks;
    std::int64_t tensor;
    std::int64_t pipeline;
    int zero_stage;
};

}  // namespace

TEST_CASE("training from another run's weights equals training whose weights were those, on any layout") {
    for (const Architecture architecture : {Architecture::Gpt2, Architecture::Llama}) {
        MemoryFileSystem files;
        const TrainOutcome other = train_other(files, architecture);
        for (const Layout layout :
             {Layout{1, 1, 1, 1}, {2, 1, 1, 0}, {2, 1, 1, 3}, {2, 2, 1, 1}, {2, 1, 2, 1}}) {
            CAPTURE(layout.ranks, layout.tensor, layout.pipeline, layout.zero_stage);
            TrainSetup setup;
            setup.job = tiny_job(architecture);
            setup.job.steps = 4;
            setup.job.parallel.tensor_parallel_size = layout.tensor;
            setup.job.parallel.pipeline_parallel_size = layout.pipeline;
            setup.job.memory.zero_stage = layout.zero_stage;
            setup.ranks = layout.ranks;
            TrainSetup given = setup;
            given.weights = &other.state;
            const TrainOutcome expected = train(given);
            setup.files = &files;
            setup.root = "run-" + std::to_string(layout.ranks * 1000 + layout.tensor * 100 +
                                                 layout.pipeline * 10 + layout.zero_stage);
            setup.start_from = "other";
            const TrainOutcome found = train(setup);
            CHECK(found.steps == expected.steps);
            CHECK(found.state == expected.state);
            CHECK(found.drifted.empty());
            CHECK(found.off_plan.empty());
            CHECK(found.progress.step == 4);
            // A draw by the seed is another training.
            given.weights = nullptr;
            CHECK_FALSE(train(given).steps == expected.steps);
        }
    }
}

TEST_CASE("what a training begins with is the weights to the bit") {
    MemoryFileSystem files;
    const TrainOutcome other = train_other(files, Architecture::Gpt2);
    TrainSetup setup;
    setup.job = tiny_job(Architecture::Gpt2);
    setup.ranks = 2;
    setup.files = &files;
    setup.root = "run";
    setup.start_from = "other";
    setup.job.optimizer.lr = 1e-30;
    setup.job.schedule.min_lr = 1e-30;
    setup.steps = 1;
    const TrainOutcome begun = train(setup);
    for (const auto& [name, values] : begun.state) {
        INFO(name);
        if (is_weight(name)) CHECK(values == other.state.at(name));
    }
    CHECK(begun.progress.step == 1);
    CHECK(begun.progress.applied_updates == 1);
}

TEST_CASE("weights of another shape, or damaged ones, begin nothing, on all ranks alike") {
    MemoryFileSystem files;
    train_other(files, Architecture::Gpt2);
    TrainSetup setup;
    setup.job = tiny_job(Architecture::Gpt2);
    setup.ranks = 2;
    setup.files = &files;
    setup.root = "run";
    setup.start_from = "other";
    const auto error_of = [&]() -> std::string {
        try {
            train(setup);
        } catch (const Error& error) {
            CHECK(error.code() == Exit::BadInput);
            return error.what();
        }
        return {};
    };
    setup.job.model.ffn_size = 64;
    CHECK_THAT(error_of(), Catch::Contains("this job needs"));
    setup.job = tiny_job(Architecture::Gpt2);
    const std::string path = "other/" + files.list("other").at(0);
    files.flip_bit(path + "/r00001.st", 8 * 5000);
    CHECK_THAT(error_of(), Catch::Contains("chunk") && Catch::Contains("choose another checkpoint"));
}
