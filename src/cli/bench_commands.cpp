#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "cli/device_option.h"
#include "cli/job_options.h"
#include "cli/number_option.h"
#include "cli/rank_device.h"
#include "cli/rank_errors.h"
#include "cli/rank_main.h"
#include "cli/tune_products.h"
#include "trainctl/bench/comm_bench.h"
#include "trainctl/bench/memory_bench.h"
#include "trainctl/bench/op_bench.h"
#include "trainctl/bench/step_bench.h"
#include "trainctl/config/load.h"

namespace trainctl {
namespace {

// What the options of `bench step`, `bench op` and `bench memory` hold.
struct StepOptions {
    std::string preset = "gpt2-124m";
    std::int64_t micro_batch = 4;
    std::int64_t accumulation = 1;
    std::int64_t sequence = 256;
    std::string compute = "bf16";
    std::int64_t zero_stage = 1;
    std::int64_t tensor = 1;
    std::int64_t pipeline = 1;
    std::string overlap = "on";
    std::int64_t threads = 0;
    std::string device = "auto";
    bool cuda_graphs = false;
    StepBenchOptions bench;
};

// An option of the benchmark and the key of the job that it sets.
struct Setting {
    std::string option;
    std::string key;
    std::string value;

    [[nodiscard]] std::string assignment() const { return key + "=" + value; }
};

std::vector<Setting> settings_of(const StepOptions& options, const std::string& batch_option) {
    return {{"--preset", "model.preset", options.preset},
            {batch_option, "training.micro_batch_size", std::to_string(options.micro_batch)},
            {"--accumulation", "training.gradient_accumulation_steps", std::to_string(options.accumulation)},
            {"--sequence", "training.sequence_length", std::to_string(options.sequence)},
            {"--compute", "precision.compute", options.compute},
            {"--zero-stage", "memory.zero_stage", std::to_string(options.zero_stage)},
            {"--tensor", "parallel.tensor_parallel_size", std::to_string(options.tensor)},
            {"--pipeline", "parallel.pipeline_parallel_size", std::to_string(options.pipeline)},
            {"--overlap", "communication.overlap_comm", options.overlap == "on" ? "true" : "false"},
            {"--threads", "device.threads", options.threads == 0 ? "auto" : std::to_string(options.threads)},
            {"--device", "device.kind", options.device},
            {"--cuda-graphs", "device.cuda_graphs", options.cuda_graphs ? "true" : "false"}};
}

// Puts a problem in the words of the command line: the user gave options, not keys.
void speak_of_options(Problem& problem, const std::vector<Setting>& settings) {
    for (const Setting& setting : settings) {
        const auto rename = [&](Position& at) {
            if (at.file == "--set " + setting.assignment()) at.file = setting.option + " " + setting.value;
        };
        rename(problem.at);
        std::for_each(problem.also.begin(), problem.also.end(), rename);
        for (std::size_t at = problem.what.find(setting.key); at != std::string::npos;
             at = problem.what.find(setting.key))
            problem.what.replace(at, setting.key.size(), setting.option);
    }
}

// The benchmark's job is an ordinary job: it is checked like one.
JobSpec bench_job(const std::vector<Setting>& settings, std::int64_t ranks) {
    const std::string text =
        "[job]\nname = \"bench\"\nrun_dir = \"unused\"\nsteps = 1000000\n[data]\ntrain = [\"unused\"]\n"
        "[schedule]\nkind = \"constant\"\n";
    LoadOptions load;
    load.world_size = ranks;
    for (const Setting& setting : settings) load.set.push_back(setting.assignment());
    LoadedJob job = load_job_text(text, "bench job", load);
    for (Problem& problem : job.problems) speak_of_options(problem, settings);
    return job_or_fail(job);
}

void add_step(CLI::App& bench, Invocation& invocation) {
    auto options = std::make_shared<StepOptions>();
    CLI::App* command = bench.add_subcommand("step",
                                             "Whole training steps against the step's own matrix products, "
                                             "both measured in this run (gemm_share)");
    command->add_option("--preset", options->preset, "model")->capture_default_str();
    command->add_option("--micro-batch", options->micro_batch, "samples")
        ->capture_default_str()
        ->check(at_least(1));
    command->add_option("--accumulation", options->accumulation, "micro-batches per step")
        ->capture_default_str()
        ->check(at_least(1));
    command->add_option("--sequence", options->sequence, "tokens")->capture_default_str()->check(at_least(1));
    command->add_option("--compute", options->compute, "bf16, fp16 or fp32")->capture_default_str();
    command->add_option("--zero-stage", options->zero_stage, "0 to 3")
        ->capture_default_str()
        ->check(at_least(0));
    command->add_option("--tensor", options->tensor, "ranks that share matrices")
        ->capture_default_str()
        ->check(at_least(1));
    command->add_option("--pipeline", options->pipeline, "stages")->capture_default_str()->check(at_least(1));
    command->add_option("--overlap", options->overlap, "communication behind computation: on or off")
        ->capture_default_str()
        ->check(CLI::IsMember({"on", "off"}));
    command->add_option("--threads", options->threads, "per rank; 0: the rank's share of the cores")
        ->check(at_least(0));
    add_device_option(*command, options->device);
    command->add_flag("--cuda-graphs", options->cuda_graphs, "replay what repeats (device.cuda_graphs)");
    command->add_option("--rounds", options->bench.rounds, "medians are over these")
        ->capture_default_str()
        ->check(repetitions());
    command->add_option("--steps", options->bench.steps_per_round, "per round")
        ->capture_default_str()
        ->check(repetitions());
    add_json_flag(*command, invocation);
    command->callback([&invocation, options] {
        invocation.action = [&invocation, options] {
            const JobSpec job = bench_job(settings_of(*options, "--micro-batch"), environment_ranks());
            RankSettings settings;
            settings.device = job.device;
            settings.communication = job.communication;
            return rank_main(invocation, settings, [&](RankContext& context) {
                const RankOnDevice made =
                    make_rank(context, job.device, job.communication,
                              mesh_shape(job.parallel, context.world.size()), &job.model);
                tune_products(context, *made.rank, job);
                const StepBenchResult result = bench_step(*made.rank, job, invocation.clock, options->bench);
                if (context.world.rank() == 0) print_result(invocation, describe(result), to_json(result));
                return Exit::Ok;
            });
        };
    });
}

void add_op(CLI::App& bench, Invocation& invocation) {
    struct Options {
        StepOptions shape;
        OpBenchOptions bench;
    };
    auto options = std::make_shared<Options>();
    CLI::App* command = bench.add_subcommand(
        "op",
        "Single ops at the shapes of a model, every result checked, against ceilings measured in this run");
    command->add_option("OP", options->bench.only, "part of a name; default: all");
    command->add_option("--preset", options->shape.preset, "model")->capture_default_str();
    command->add_option("--batch", options->shape.micro_batch, "samples")
        ->capture_default_str()
        ->check(at_least(1));
    command->add_option("--sequence", options->shape.sequence, "tokens")
        ->capture_default_str()
        ->check(at_least(1));
    command->add_option("--compute", options->shape.compute, "bf16, fp16 or fp32")->capture_default_str();
    command->add_option("--threads", options->shape.threads, "0: the rank's share of the cores")
        ->check(at_least(0));
    add_device_option(*command, options->shape.device);
    command->add_option("--repetitions", options->bench.repetitions, "medians are over these")
        ->capture_default_str()
        ->check(repetitions());
    add_json_flag(*command, invocation);
    command->callback([&invocation, options] {
        invocation.action = [&invocation, options] {
            const JobSpec job = bench_job(settings_of(options->shape, "--batch"), 1);
            options->bench.model = job.model;
            options->bench.compute = job.precision.compute;
            options->bench.batch = options->shape.micro_batch;
            options->bench.length = options->shape.sequence;
            RankSettings settings;
            settings.device = job.device;
            settings.communication = job.communication;
            return rank_main(invocation, settings, [&](RankContext& context) {
                const RankOnDevice made =
                    make_rank(context, job.device, job.communication,
                              mesh_shape(ParallelSpec{}, context.world.size()), &job.model);
                tune_products(context, *made.rank, benched_products(options->bench));
                const std::vector<OpBenchRow> rows = bench_ops(*made.rank, invocation.clock, options->bench);
                if (context.world.rank() == 0) print_result(invocation, describe(rows), to_json(rows));
                return Exit::Ok;
            });
        };
    });
}

void add_memory(CLI::App& bench, Invocation& invocation) {
    auto options = std::make_shared<StepOptions>();
    // Enough rows that the blocks, not the logits, take most.
    options->micro_batch = 8;
    options->sequence = 1024;
    CLI::App* command = bench.add_subcommand(
        "memory",
        "What a rank holds at ZeRO 0 to 3 and with activation checkpointing, against the arithmetic; "
        "allocates nothing");
    command->add_option("--preset", options->preset, "model")->capture_default_str();
    command->add_option("--micro-batch", options->micro_batch, "samples")
        ->capture_default_str()
        ->check(at_least(1));
    command->add_option("--sequence", options->sequence, "tokens")->capture_default_str()->check(at_least(1));
    command->add_option("--compute", options->compute, "bf16, fp16 or fp32")->capture_default_str();
    add_json_flag(*command, invocation);
    command->callback([&invocation, options] {
        invocation.action = [&invocation, options] {
            const JobSpec job = bench_job(settings_of(*options, "--micro-batch"), 1);
            RankSettings settings;
            settings.device = job.device;
            return rank_main(invocation, settings, [&](RankContext& context) {
                const auto backend = make_cpu_ops(context.device);
                const MemoryBenchResult result = bench_memory(job, backend->ops(), MemoryBenchOptions{});
                if (context.world.rank() == 0) print_result(invocation, describe(result), to_json(result));
                if (const auto failures = result.failures(); !failures.empty())
                    fail(Exit::Internal, fmt::format("bench memory: {} of {} checks failed, the first: {}",
                                                     failures.size(), result.checks(), failures.front()));
                return Exit::Ok;
            });
        };
    });
}

void add_comm(CLI::App& bench, Invocation& invocation) {
    auto options = std::make_shared<CommBenchOptions>();
    CLI::App* command = bench.add_subcommand(
        "comm", "Collectives between the ranks, every result checked, against copying the same bytes");
    command->add_option("--elements", options->elements, "f32 elements of the whole tensor; several sizes")
        ->capture_default_str()
        ->check(whole_number({.low = 1, .high = 1e12}));
    command->add_option("--repetitions", options->repetitions, "medians are over these")
        ->capture_default_str()
        ->check(repetitions());
    add_json_flag(*command, invocation);
    command->callback([&invocation, options] {
        invocation.action = [&invocation, options] {
            return rank_main(invocation, RankSettings{}, [&](RankContext& context) {
                Rank rank(context.device, context.world, mesh_shape(ParallelSpec{}, context.world.size()));
                const std::vector<CommBenchRow> rows = bench_comm(rank, invocation.clock, *options);
                const int ranks = context.world.size();
                if (context.world.rank() == 0) {
                    print_result(invocation, describe(rows, ranks), to_json(rows, ranks));
                }
                return Exit::Ok;
            });
        };
    });
}

}  // namespace

void add_bench_commands(CLI::App& app, Invocation& invocation) {
    CLI::App* bench = app.add_subcommand("bench", "Measure this machine with the code that trains on it");
    bench->require_subcommand(1);
    add_op(*bench, invocation);
    add_comm(*bench, invocation);
    add_memory(*bench, invocation);
    add_step(*bench, invocation);
}

}  // namespace trainctl
