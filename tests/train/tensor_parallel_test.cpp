// Ranks that share every matrix train as one rank does.
#include <memory>

#include "support/catch.h"
#include "support/memory_file_system.h"
#include "train/check_outcomes.h"
#include "train/finite_stream.h"

using namespace trainctl;
using namespace trainctl::test;

namespace {

struct Layout {
    int tensor = 1;
    bool rows_sharded = true;
    int data = 1;
    int zero_stage = 1;
};

TrainSetup setup_of(const JobSpec& job, const Layout& layout) {
    TrainSetup setup;
    setup.job = job;
    setup.job.parallel.tensor_parallel_size = layout.tensor;
    setup.job.parallel.sequence_parallel = layout.rows_sharded;
    setup.job.memory.zero_stage = layout.zero_stage;
    setup.ranks = layout.tensor * layout.data;
    return setup;
}

TrainOutcome run(const JobSpec& job, const Layout& layout) { return train(setup_of(job, layout)); }

// 6 heads, 5 layers, 19 tokens, one sample at a time: 19 rows are no multiple of 2, 3 or 4.
JobSpec awkward_job(Architecture architecture, std::int64_t kv_heads) {
    JobSpec job = calm_job(architecture);
    job.model.layers = 5;
    job.model.heads = 6;
    job.model.kv_heads = kv_heads;
    job.model.hidden_size = 24;
    job.model.head_dim = 4;
    job.model.ffn_size = 36;
    job.model.max_sequence_length = 19;
    job.training.sequence_length = 19;
    job.training.micro_batch_size = 1;
    job.training.global_batch_size = 4;
    return job;
}

JobSpec grouped_job(std::int64_t kv_heads, bool tied) {
    JobSpec job = calm_job(Architecture::Llama);
    job.model.kv_heads = kv_heads;
    job.model.tie_embeddings = tied;
    return job;
}

void check_layouts(const JobSpec& job, const std::vector<Layout>& layouts) {
    const TrainOutcome one = run(job, {});
    for (const Layout& layout : layouts) {
        INFO("tensor " << layout.tensor << (layout.rows_sharded ? " sharded rows" : "") << " data "
                       << layout.data << " stage " << layout.zero_stage);
        check_rounding(one, run(job, layout));
    }
}

}  // namespace

TEST_CASE("tensor 1, 2 and 4 train alike to rounding, GPT-2 shape") {
    JobSpec job = calm_job(Architecture::Gpt2);
    check_layouts(job, {{2}, {4}, {2, false}, {4, false}, {2, true, 2, 2}});
    job.model.tie_embeddings = false;
    check_layouts(job, {{2, true, 2, 0}, {4, false, 2, 3}});
}

TEST_CASE("grouped queries: key/value heads that several ranks hold train as on one rank") {
    check_layouts(grouped_job(2, false), {{2}, {4}, {4, false, 2, 2}});
    check_layouts(grouped_job(1, true), {{2, true, 2, 3}, {4}, {2, false}});
    // Four ranks to a key/value head, and a last rank whose 16 rows of the vocabulary are all padding.
    JobSpec job = grouped_job(2, false);
    job.model.heads = 8;
    job.model.head_dim = 4;
    check_layouts(job, {{8}});
}

TEST_CASE("heads, rows and layers that do not divide evenly") {
    check_layouts(awkward_job(Architecture::Gpt2, 6), {{2}, {2, false, 2, 2}});
    JobSpec job = awkward_job(Architecture::Llama, 3);
    job.model.vocab_size = 300;  // padded to 384, which three ranks can share
    check_layouts(job, {{3}, {3, false}, {3, true, 2, 1}});
    // One row on four ranks: three have nothing but padding.
    job = calm_job(Architecture::Llama);
    job.training.sequence_length = 1;
    job.training.micro_batch_size = 1;
    check_layouts(job, {{4}});
}

TEST_CASE("dropout draws the same masks on every layout") {
    for (const Architecture architecture : {Architecture::Gpt2, Architecture::Llama}) {
        JobSpec job = awkward_job(architecture, architecture == Architecture::Gpt2 ? 6 : 2);
        job.model.layers = 2;
        job.model.dropout = 0.2;
        job.training.micro_batch_size = 2;
        check_layouts(job, {{2}, {2, false, 2, 3}});
    }
}

TEST_CASE("initial weights and the first loss do not depend on the layout") {
    for (JobSpec job : {calm_job(Architecture::Gpt2), grouped_job(2, false)}) {
        job.steps = 1;
        job.optimizer.lr = 0.0;
        job.schedule.min_lr = 0.0;
        const TrainOutcome one = run(job, {});
        for (const Layout& layout : {Layout{2, true, 2, 2}, Layout{4, false}}) {
            const TrainOutcome other = run(job, layout);
            CHECK(other.steps[0].loss == Approx(one.steps[0].loss).epsilon(2e-6));
            for (const auto& [name, values] : one.state) {
                if (name.ends_with(".m") || name.ends_with(".v")) continue;
                INFO(name);
                CHECK(other.state.at(name) == values);
            }
        }
    }
}

TEST_CASE("with tensor parallel ranks ZeRO 0 to 3, and recomputation, change no bit") {
    for (const JobSpec& base : {calm_job(Architecture::Gpt2), grouped_job(1, false)}) {
        JobSpec job = base;
        job.steps = 6;
        job.model.dropout = 0.1;
        job.training.micro_batch_size = 4;
        const TrainOutcome reference = run(job, {2, true, 2, 0});
        for (const int stage : {1, 2, 3}) {
            job.memory.gradient_checkpointing =
                stage == 1 ? GradientCheckpointing::Selective : GradientCheckpointing::Full;
            check_same(reference, run(job, {2, true, 2, stage}));
        }
        job.memory.gradient_checkpointing = GradientCheckpointing::None;
        const TrainOutcome whole_rows = run(job, {2, false});
        job.memory.gradient_checkpointing = GradientCheckpointing::Full;
        check_same(whole_rows, run(job, {2, false}));
    }
}

TEST_CASE("a step sends two messages besides those of its passes: gradients of replicas, and the norm") {
    JobSpec job = grouped_job(1, false);
    job.steps = 1;
    const std::int64_t blocks = job.model.layers;
    for (const std::int64_t micros : {1, 2}) {
        job.training.micro_batch_size = job.training.global_batch_size / micros;
        // Embedding and head have a gather and a reduce-scatter each, and one chunk of logits.
        const auto sharded = static_cast<std::uint64_t>(micros * (blocks * (4 + 6) + 4 + 2));
        CHECK(run(job, {2}).planned_step.messages == sharded + 2);
        const auto whole = static_cast<std::uint64_t>(micros * (blocks * (2 + 2) + 2 + 2));
        CHECK(run(job, {2, false}).planned_step.messages == whole + 2);
    }
}

TEST_CASE("bf16 on tensor parallel ranks follows one rank within its precision") {
    JobSpec job = grouped_job(2, false);
    job.precision.compute = DType::BF16;
    const TrainOutcome one = run(job, {});
    for (const Layout& layout : {Layout{2, true, 2, 3}, Layout{4, false}}) {
        const TrainOutcome other = run(job, layout);
        for (std::size_t index = 0; index < one.steps.size(); ++index) {
            CHECK(other.steps[index].loss == Approx(one.steps[index].loss).epsilon(1e-3));
            CHECK(other.steps[index].grad_norm == Approx(one.steps[index].grad_norm).epsilon(2e-2));
        }
    }
}

TEST_CASE("late streams change no bit of a tensor parallel training") {
    for (const bool rows_sharded : {true, false}) {
        TrainSetup setup = setup_of(grouped_job(1, true), {2, rows_sharded, 2, rows_sharded ? 3 : 0});
        setup.job.steps = 3;
        const TrainOutcome prompt = train(setup);
        for (const std::uint64_t seed : {1U, 2U}) {
            setup.late_seed = seed;
            check_same(prompt, train(setup));
        }
    }
}

TEST_CASE("any tensor size loads the checkpoint of any other") {
    const JobSpec job = grouped_job(2, false);
    TrainSetup straight = setup_of(job, {});
    const TrainOutcome whole = train(straight);
    MemoryFileSystem files;
    const auto part = [&](const Layout& layout, int attempt, std::int64_t steps) {
        TrainSetup setup = setup_of(job, layout);
        setup.files = &files;
        setup.root = "checkpoints";
        setup.attempt = attempt;
        if (attempt > 1) setup.resume = ResumeMode::Auto;
        setup.steps = steps;
        return train(setup);
    };
    TrainOutcome saved = part({}, 1, 5);
    int attempt = 2;
    for (const Layout& layout :
         {Layout{2, true, 2, 2}, Layout{1, true, 2, 1}, Layout{4, false}, Layout{2, true, 1, 3}, Layout{}}) {
        INFO("attempt " << attempt);
        // Loaded to the bit, then a few steps on.
        CHECK(part(layout, attempt, saved.progress.step).state == saved.state);
        saved = part(layout, attempt + 1, saved.progress.step + 3);
        attempt += 2;
    }
    REQUIRE(saved.progress.step == whole.progress.step);
    TrainOutcome straight_end;
    straight_end.state = whole.state;
    TrainOutcome resumed_end;
    resumed_end.state = saved.state;
    check_rounding(straight_end, resumed_end);
}

TEST_CASE("evaluation is the same on every layout, and memory is what the table says") {
    JobSpec job = awkward_job(Architecture::Gpt2, 6);
    job.steps = 4;
    job.training.eval_interval = 2;
    job.training.eval_batches = 2;
    const ValidationSet validation(job, 16);
    const auto evaluated = [&](const Layout& layout) {
        TrainSetup setup = setup_of(job, layout);
        setup.validation = &validation.samples;
        return train(setup);
    };
    const TrainOutcome one = evaluated({});
    REQUIRE(one.evaluations.size() == 2);
    for (const Layout& layout : {Layout{2}, Layout{2, false, 2, 3}}) {
        const TrainOutcome other = evaluated(layout);
        check_evaluations(one, other, 2e-6);
        CHECK(other.off_plan == std::vector<std::string>{});
        CHECK(other.device_allocations_after_first_step == 0);
    }
}
