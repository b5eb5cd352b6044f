// What must not change the training: threads, sharding, ranks, micro-batch size, buckets, overlap.
#include "support/catch.h"
#include "train/check_outcomes.h"

using namespace trainctl;
using namespace trainctl::test;

namespace {

TrainOutcome run(JobSpec job, int ranks, int threads = 1) {
    TrainSetup setup;
    setup.job = std::move(job);
    setup.ranks = ranks;
    setup.threads = threads;
    return train(setup);
}

}  // namespace

TEST_CASE("the number of threads changes nothing, to the bit") {
    for (const DType compute : {DType::F32, DType::BF16}) {
        JobSpec job = tiny_job(Architecture::Llama);
        job.precision.compute = compute;
        job.steps = 6;
        const TrainOutcome one = run(job, 1, 1);
        check_same(one, run(job, 1, 2));
        check_same(one, run(job, 1, 5));
    }
}

TEST_CASE("ZeRO 0 to 3 are the same training to the bit, whatever the buckets and the overlap") {
    for (const Architecture architecture : {Architecture::Gpt2, Architecture::Llama}) {
        for (const int ranks : {1, 2, 4}) {
            JobSpec job = tiny_job(architecture);
            job.steps = 8;
            job.training.micro_batch_size = 8 / ranks;  // no accumulation: all agree
            job.memory.zero_stage = 0;
            const TrainOutcome reference = run(job, ranks);
            for (const int stage : {1, 2, 3}) {
                for (const double bucket_mb : {0.0, 0.001, 1000.0}) {
                    INFO("ranks " << ranks << " stage " << stage << " bucket " << bucket_mb);
                    job.memory.zero_stage = stage;
                    job.communication.gradient_bucket_mb = bucket_mb;
                    job.communication.overlap_comm = bucket_mb != 0.001;
                    check_same(reference, run(job, ranks));
                }
            }
        }
    }
}

TEST_CASE("with accumulation stages 0 and 1 agree to the bit, so do 2 and 3, and the pairs to rounding") {
    JobSpec job = tiny_job(Architecture::Llama);
    job.training.micro_batch_size = 1;
    job.memory.zero_stage = 0;
    const TrainOutcome stage0 = run(job, 2);
    job.memory.zero_stage = 1;
    check_same(stage0, run(job, 2));
    job.memory.zero_stage = 2;
    const TrainOutcome stage2 = run(job, 2);
    check_rounding(stage0, stage2);
    job.memory.zero_stage = 3;
    check_same(stage2, run(job, 2));
}

TEST_CASE("1, 2 and 4 ranks and any micro-batch size train alike to rounding, with dropout too") {
    for (const Architecture architecture : {Architecture::Gpt2, Architecture::Llama}) {
        JobSpec job = tiny_job(architecture);
        job.model.dropout = 0.1;
        job.training.micro_batch_size = 8;
        const TrainOutcome one = run(job, 1);
        job.training.micro_batch_size = 2;
        check_rounding(one, run(job, 1));
        check_rounding(one, run(job, 2));
        check_rounding(one, run(job, 4));
    }
}

TEST_CASE("parameters that the ranks do not divide are padded, for every stage as asked") {
    JobSpec job = tiny_job(Architecture::Gpt2);
    job.training.global_batch_size = 9;
    job.training.micro_batch_size = 3;
    job.steps = 8;
    job.memory.zero_stage = 0;
    const TrainOutcome stage0 = run(job, 3);
    for (const int stage : {1, 2, 3}) {
        job.memory.zero_stage = stage;
        check_same(stage0, run(job, 3));
    }
}

TEST_CASE(
    "recomputed activations are the same training to the bit, in any stage, with dropout and accumulation") {
    for (const Architecture architecture : {Architecture::Gpt2, Architecture::Llama}) {
        JobSpec job = tiny_job(architecture);
        job.model.dropout = 0.1;
        job.steps = 6;
        job.training.micro_batch_size = 2;
        job.memory.zero_stage = 2;
        const TrainOutcome kept = run(job, 2);
        for (const auto mode : {GradientCheckpointing::Selective, GradientCheckpointing::Full}) {
            for (const std::int64_t every : {1, 2}) {
                job.memory.gradient_checkpointing = mode;
                job.memory.checkpoint_every_blocks = every;
                job.memory.zero_stage = every == 1 ? 3 : 2;
                check_same(kept, run(job, 2));
            }
        }
    }
}

TEST_CASE("streams that run as late as events allow give the same bits: no wait is missing") {
    for (const int stage : {0, 1, 2, 3}) {
        TrainSetup setup;
        setup.job = tiny_job(Architecture::Llama);
        setup.job.steps = 4;
        setup.job.memory.zero_stage = stage;
        setup.ranks = 2;
        const TrainOutcome prompt = train(setup);
        for (const std::uint64_t seed : {1U, 2U, 3U}) {
            INFO("stage " << stage << " seed " << seed);
            setup.late_seed = seed;
            check_same(prompt, train(setup));
        }
    }
}
