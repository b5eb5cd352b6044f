// `bench op` and `bench step` where the host cannot read what ops compute.
#include "cuda/cuda_bench.h"
#include "cuda/cuda_training.h"
#include "support/catch.h"
#include "support/run_ranks.h"
#include "trainctl/bench/op_bench.h"
#include "trainctl/bench/step_bench.h"

namespace trainctl::cuda_test {

TEST_CASE("bench op checks and measures every op on a cuda device", "[cuda]") {
    const auto measured = [](Architecture architecture, const std::string& only) {
        start_cuda_machine(1);
        return test::collect_ranks<std::vector<OpBenchRow>>(
                   1,
                   [&](World& world, CpuDevice& host) {
                       SystemClock clock;
                       const auto rank = make_cuda_rank(world, host, MeshShape{}, CudaTransport::Host);
                       OpBenchOptions options;
                       options.model = test::tiny_job(architecture).model;
                       options.batch = 2;
                       options.length = 19;
                       options.repetitions = 1;
                       options.only = only;
                       options.updated_elements = 1 << 16;
                       options.smallest_product = 128;
                       options.streamed_elements = 1 << 16;
                       return bench_ops(*rank, clock, options);
                   })
            .front();
    };
    std::vector<OpBenchRow> rows = measured(Architecture::Llama, "");
    CHECK(rows.size() == 22);
    rows.push_back(measured(Architecture::Gpt2, "gelu").front());
    for (const OpBenchRow& row : rows) {
        INFO(row.name);
        CHECK(row.worst_error <= row.tolerance);
        CHECK(row.share_of_ceiling > 0.0);
    }
}

TEST_CASE("bench step says how much of a step ran as graphs", "[cuda]") {
    start_cuda_machine(1);
    const auto results = test::collect_ranks<StepBenchResult>(1, [](World& world, CpuDevice& host) {
        SystemClock clock;
        const auto rank = make_cuda_rank(world, host, MeshShape{}, CudaTransport::Host, CudaGraphs::On);
        JobSpec job = test::tiny_job(Architecture::Gpt2);
        job.schedule.warmup_steps = 1;
        return bench_step(*rank, job, clock, {.rounds = 1, .steps_per_round = 2});
    });
    REQUIRE(results[0].graphs);
    CHECK(results[0].graphs->replayed > 0);
    CHECK_THAT(describe(results[0]), Catch::Contains("cuda graphs "));
    CHECK_THAT(to_json(results[0]), Catch::Contains("\"sections_replayed\":"));
}

}  // namespace trainctl::cuda_test
