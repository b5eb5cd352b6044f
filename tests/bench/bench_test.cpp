// Benchmarks compute what they claim; how fast is not a test's business.
#include <array>
#include <nlohmann/json.hpp>

#include "support/catch.h"
#include "support/run_ranks.h"
#include "trainctl/bench/comm_bench.h"
#include "trainctl/bench/median.h"
#include "trainctl/bench/memory_bench.h"
#include "trainctl/bench/op_bench.h"
#include "trainctl/bench/step_bench.h"
#include "trainctl/config/model_math.h"

using namespace trainctl;
using namespace trainctl::test;

namespace {

JobSpec bench_job(int ranks) {
    JobSpec job;
    job.steps = 1000;
    job.model.architecture = Architecture::Gpt2;
    job.model.layers = 2;
    job.model.hidden_size = 64;
    job.model.heads = 4;
    job.model.kv_heads = 4;
    job.model.head_dim = 16;
    job.model.ffn_size = 256;
    job.model.vocab_size = 128;
    job.model.max_sequence_length = 32;
    job.model.tie_embeddings = true;
    job.training.sequence_length = 32;
    job.training.micro_batch_size = 2;
    job.training.global_batch_size = 2 * ranks;
    job.schedule.kind = ScheduleKind::Constant;
    job.optimizer.lr = 1e-2;
    return job;
}

}  // namespace

TEST_CASE("the median of odd and even counts") {
    CHECK(median({3.0}) == 3.0);
    CHECK(median({9.0, 1.0, 2.0}) == 2.0);
    CHECK(median({4.0, 1.0, 2.0, 9.0}) == 3.0);
}

TEST_CASE("bench comm verifies every collective on one, two and three ranks") {
    for (const int ranks : {1, 2, 3}) {
        const auto results =
            collect_ranks<std::vector<CommBenchRow>>(ranks, [](World& world, CpuDevice& device) {
                SystemClock clock;
                Rank rank(device, world, mesh_shape(ParallelSpec{}, world.size()));
                CommBenchOptions options;
                options.elements = {1, 1000, 70'000};
                options.repetitions = 2;
                return bench_comm(rank, clock, options);
            });
        for (const auto& rows : results) {
            REQUIRE(rows.size() == 12);
            for (const CommBenchRow& row : rows) {
                CHECK(row.seconds > 0.0);
                CHECK(row.bytes % static_cast<std::int64_t>(ranks * sizeof(float)) == 0);
            }
        }
        const auto json = nlohmann::json::parse(to_json(results.front(), ranks));
        CHECK(json["rows"].size() == 12);
    }
}

TEST_CASE("bench step trains, and its products are those of the model's FLOPs") {
    for (const int ranks : {1, 2}) {
        const auto results = collect_ranks<StepBenchResult>(ranks, [](World& world, CpuDevice& device) {
            SystemClock clock;
            Rank rank(device, world, mesh_shape(ParallelSpec{}, world.size()));
            StepBenchOptions options;
            options.rounds = 3;
            return bench_step(rank, bench_job(world.size()), clock, options);
        });
        const StepBenchResult& result = results.front();
        CHECK(result.loss_last < result.loss_first);
        CHECK(result.gemm_share > 0.0);
        // Products alone are the model's FLOPs without attention; nothing is counted twice or forgotten.
        const JobSpec job = bench_job(ranks);
        const double tokens =
            static_cast<double>(job.training.micro_batch_size * job.training.sequence_length);
        const double attention = 6.0 * 2 * 4 * 16 * 32;
        const double expected = tokens * (flops_per_token(job.model, 32) - attention);
        const double measured = result.gemm_flops / ranks;
        // The products run over the padded vocabulary (here: none) and leave out norms and biases, which the
        // formula counts.
        CHECK(measured == Approx(expected).epsilon(0.02));
        const auto json = nlohmann::json::parse(to_json(result));
        CHECK(json["gemm_share"].get<double>() == Approx(result.gemm_share));
        // Two blocks of four products, and the head.
        const auto calls = [&](const std::string& name) {
            int count = 0;
            for (const auto& op : json["ops"]) {
                if (op["name"] == name) count += op["calls"].get<int>();
            }
            return count;
        };
        CHECK(calls("matmul.forward") == 2 * 4 + 1);
        CHECK(calls("matmul.backward_weight") == 2 * 4 + 1);
        CHECK(calls("attention.backward") == 2);
        CHECK(calls("adamw") >= 1);
    }
}

TEST_CASE("bench step trains in fp16") {
    const auto results = collect_ranks<StepBenchResult>(2, [](World& world, CpuDevice& device) {
        SystemClock clock;
        Rank rank(device, world, mesh_shape(ParallelSpec{}, world.size()));
        JobSpec job = bench_job(world.size());
        job.precision.compute = DType::F16;
        return bench_step(rank, job, clock, StepBenchOptions{});
    });
    CHECK(results.front().loss_last < results.front().loss_first);
}

TEST_CASE("bench memory finds what the arithmetic says, for both families and all types") {
    const auto device = make_cpu_device({.threads = 1, .isa = detect_cpu_isa()});
    const auto ops = make_cpu_ops(*device);
    constexpr int extra_blocks = 3;
    for (const Architecture architecture : {Architecture::Gpt2, Architecture::Llama}) {
        for (const DType compute : {DType::F32, DType::BF16, DType::F16}) {
            INFO(static_cast<int>(architecture) << " " << static_cast<int>(compute));
            JobSpec job = bench_job(1);
            job.model.architecture = architecture;
            job.model.layers = 5;
            job.model.hidden_size = 128;
            job.model.head_dim = 32;
            job.model.ffn_size = 512;
            if (architecture == Architecture::Gpt2) job.model.dropout = 0.1;
            if (architecture == Architecture::Llama) job.model.kv_heads = 2;
            job.precision.compute = compute;
            const MemoryBenchResult result = bench_memory(job, ops->ops(), {});
            CHECK(result.failures().empty());
            REQUIRE(result.states.size() == 16);
            for (const ModelStateRow& row : result.states) {
                const double d = row.data_ranks;
                const std::array<double, 4> half = {18.0, 6.0 + 12.0 / d, 2.0 + 16.0 / d, 18.0 / d};
                const std::array<double, 4> single = {16.0, 8.0 + 8.0 / d, 4.0 + 12.0 / d, 16.0 / d};
                const auto stage = static_cast<std::size_t>(row.zero_stage);
                CHECK(row.expected == Approx(compute == DType::F32 ? single[stage] : half[stage]));
                CHECK((row.gradient_buckets > 0) == (row.zero_stage >= 2));
                CHECK((row.gathered_units > 0) == (row.zero_stage == 3));
                CHECK(row.flags > 0);
            }
            // One more block leaves what it keeps, and with full checkpointing that is a hidden state.
            job.model.layers += extra_blocks;
            const MemoryBenchResult longer = bench_memory(job, ops->ops(), {});
            REQUIRE(result.activations.size() == 3);
            for (std::size_t i = 0; i < result.activations.size(); ++i) {
                const ActivationRow& row = result.activations[i];
                CHECK(longer.activations[i].found - row.found == extra_blocks * row.kept_per_block);
            }
            CHECK(result.activations.back().checkpointing == GradientCheckpointing::Full);
            CHECK(result.activations.back().kept_per_block == 2 * 32 * 128 * dtype_size(compute));
        }
    }
}

TEST_CASE("bench memory names what is not as expected") {
    ModelStateRow state{.zero_stage = 3, .data_ranks = 8, .expected = 2.25, .found = 2.29};
    ActivationRow activation{GradientCheckpointing::Full, 10, 100, 100};
    CHECK(MemoryBenchResult{1, {state}, {activation}}.failures().empty());
    state.found = 2.30;
    CHECK(!state.ok());
    state.found = 2.20;
    CHECK(!state.ok());
    activation.found = 101;
    const MemoryBenchResult wrong{1, {state}, {activation}};
    REQUIRE(wrong.failures().size() == 2);
    CHECK_THAT(wrong.failures()[0],
               Catch::Contains("ZeRO 3 on 8") && Catch::Contains("2.25") && Catch::Contains("2.2"));
    CHECK_THAT(wrong.failures()[1], Catch::Contains("full") && Catch::Contains("100 bytes, found 101"));
    CHECK_THAT(describe(wrong), Catch::Contains("WRONG"));
    CHECK(!nlohmann::json::parse(to_json(wrong))["ok"].get<bool>());
}

TEST_CASE("bench op recomputes every op at sampled places, for both families and types") {
    for (const Architecture architecture : {Architecture::Gpt2, Architecture::Llama}) {
        for (const DType compute : {DType::F32, DType::BF16, DType::F16}) {
            const auto rows = collect_ranks<std::vector<OpBenchRow>>(1, [&](World& world, CpuDevice& device) {
                SystemClock clock;
                Rank rank(device, world, mesh_shape(ParallelSpec{}, world.size()));
                OpBenchOptions options;
                options.model = bench_job(1).model;
                options.model.architecture = architecture;
                if (architecture == Architecture::Llama) options.model.kv_heads = 2;
                options.compute = compute;
                options.batch = 2;
                options.length = 19;
                options.repetitions = 1;
                return bench_ops(rank, clock, options);
            });
            CHECK(rows.front().size() == 22);
            for (const OpBenchRow& row : rows.front()) {
                INFO(row.name);
                CHECK(row.worst_error <= row.tolerance);
                CHECK(row.share_of_ceiling > 0.0);
            }
        }
    }
}

TEST_CASE("bench op refuses a name that fits nothing") {
    const auto tried = collect_ranks<Exit>(1, [](World& world, CpuDevice& device) {
        SystemClock clock;
        Rank rank(device, world, mesh_shape(ParallelSpec{}, world.size()));
        OpBenchOptions options;
        options.model = bench_job(1).model;
        options.batch = 1;
        options.length = 8;
        options.repetitions = 1;
        options.only = "no such op";
        try {
            bench_ops(rank, clock, options);
        } catch (const Error& error) {
            return error.code();
        }
        return Exit::Ok;
    });
    CHECK(tried.front() == Exit::Usage);
}

TEST_CASE("a share above 100 % is explained where it is printed, and figures have few digits") {
    OpBenchRow row;
    row.name = "add";
    row.seconds = 0.0000123456;
    row.bytes = 1e6;
    row.share_of_ceiling = 0.9;
    CHECK_THAT(describe({row}),
               !Catch::Contains("above 100 %") && Catch::Contains("12.35 us") && Catch::Contains(" 81 "));
    OpBenchRow fast = row;
    fast.share_of_ceiling = 1.2;
    CHECK_THAT(describe({row, fast}), Catch::Contains("120.0 %") && Catch::Contains("A share above 100 %"));

    StepBenchResult step;
    step.step_s = 0.0421399;
    step.tokens_per_s = 37.4189906919765;
    step.gemm_share = 0.7;
    CHECK_THAT(describe(step), !Catch::Contains("above 100 %") && Catch::Contains("42.14 ms") &&
                                   Catch::Contains("tokens/s        37.42\n") && !Catch::Contains("0.0000"));
    step.gemm_share = 1.03;
    CHECK_THAT(describe(step), Catch::Contains("103.0 %\n                above 100 %"));
}
