// Interrupted and uninterrupted runs, and other layouts: the first promise of the project.
#include <cmath>

#include "support/catch.h"
#include "support/temporary_directory.h"
#include "train/train_harness.h"

using namespace trainctl;
using namespace trainctl::test;

namespace {

struct Case {
    Architecture architecture;
    int ranks;
    int zero_stage;
    std::int64_t micro_batch;
    double dropout;
};

JobSpec job_of(const Case& one) {
    JobSpec job = tiny_job(one.architecture);
    job.memory.zero_stage = one.zero_stage;
    job.training.micro_batch_size = one.micro_batch;
    job.model.dropout = one.dropout;
    return job;
}

void check_same_curve(const std::vector<TracedStep>& straight, const std::vector<TracedStep>& resumed,
                      std::size_t offset) {
    REQUIRE(resumed.size() + offset == straight.size());
    for (std::size_t index = 0; index < resumed.size(); ++index) {
        INFO("step " << index + offset + 1);
        CHECK(resumed[index] == straight[index + offset]);
    }
}

}  // namespace

TEST_CASE("a run interrupted anywhere equals the uninterrupted one to the bit") {
    const auto files = make_posix_file_system();
    const Case cases[] = {{Architecture::Llama, 1, 0, 2, 0.0},
                          {Architecture::Gpt2, 2, 1, 2, 0.1},
                          {Architecture::Llama, 2, 2, 2, 0.1},
                          {Architecture::Gpt2, 3, 2, 1, 0.0}};
    for (const Case& one : cases) {
        JobSpec job = job_of(one);
        if (one.ranks == 3) job.training.global_batch_size = 9;
        TrainSetup setup;
        setup.job = job;
        setup.ranks = one.ranks;
        const TrainOutcome straight = train(setup);
        // In the warm-up, at its end, in the middle of the decay, before the last step.
        for (const std::int64_t stop : {2, 5, 11, 19}) {
            INFO("ranks " << one.ranks << " stage " << one.zero_stage << " stop " << stop);
            TemporaryDirectory directory;
            setup.files = files.get();
            setup.root = directory / "checkpoints";
            setup.steps = stop;
            train(setup);
            setup.steps = 0;
            setup.resume = ResumeMode::Auto;
            setup.attempt = 2;
            const TrainOutcome resumed = train(setup);
            check_same_curve(straight.steps, resumed.steps, static_cast<std::size_t>(stop));
            CHECK(resumed.state == straight.state);
            CHECK(resumed.progress == straight.progress);
            setup = TrainSetup{};
            setup.job = job;
            setup.ranks = one.ranks;
        }
    }
}

TEST_CASE("the state right after a load is the state that was saved, and so is the first update") {
    const auto files = make_posix_file_system();
    TemporaryDirectory directory;
    TrainSetup setup;
    setup.job = job_of({Architecture::Llama, 2, 1, 2, 0.0});
    setup.job.precision.compute = DType::BF16;
    setup.ranks = 2;
    setup.files = files.get();
    setup.root = directory / "checkpoints";
    setup.steps = 6;
    const TrainOutcome saved = train(setup);
    setup.steps = 7;
    setup.resume = ResumeMode::Auto;
    setup.attempt = 2;
    TrainSetup next = setup;
    next.files = nullptr;
    next.resume.reset();
    const TrainOutcome straight = train(next);
    const TrainOutcome first_update = train(setup);
    CHECK(first_update.state == straight.state);  // weights, m and v after step 7
    CHECK(first_update.state != saved.state);
}

TEST_CASE("another number of ranks, micro-batch or stage continues the same batches, equal to rounding") {
    const auto files = make_posix_file_system();
    for (const Architecture architecture : {Architecture::Llama, Architecture::Gpt2}) {
        TemporaryDirectory directory;
        TrainSetup setup;
        setup.job = job_of({architecture, 2, 1, 2, 0.1});
        const TrainOutcome straight = train(setup);
        setup.ranks = 2;
        setup.files = files.get();
        setup.root = directory / "checkpoints";
        setup.steps = 10;
        train(setup);
        struct Layout {
            int ranks;
            int stage;
            std::int64_t micro_batch;
        };
        for (const Layout& layout :
             {Layout{1, 0, 8}, Layout{4, 2, 1}, Layout{2, 2, 4}, Layout{1, 1, 1}, Layout{4, 0, 2}}) {
            INFO("ranks " << layout.ranks << " stage " << layout.stage << " micro-batch "
                          << layout.micro_batch);
            TrainSetup other = setup;
            other.ranks = layout.ranks;
            other.job.memory.zero_stage = layout.stage;
            other.job.training.micro_batch_size = layout.micro_batch;
            other.steps = 0;
            other.resume = ResumeMode::Auto;
            other.attempt = 2;
            const TrainOutcome resumed = train(other);
            REQUIRE(resumed.steps.size() == 10);
            for (std::size_t index = 0; index < 10; ++index) {
                const TracedStep& a = straight.steps[index + 10];
                const TracedStep& b = resumed.steps[index];
                CHECK(b.lr == a.lr);
                CHECK(b.loss == Approx(a.loss).epsilon(2e-6));
                CHECK(b.grad_norm == Approx(a.grad_norm).epsilon(1e-5));
            }
            // Remove what this run saved at its end, so that the next one resumes from step 10 again.
            for (const std::string& name : files->list(setup.root)) {
                if (name.starts_with("s000000020")) remove_checkpoint(*files, setup.root, name);
            }
        }
    }
}
