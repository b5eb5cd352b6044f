#include "trainctl/bench/step_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "trainctl/base/philox.h"
#include "trainctl/base/text.h"
#include "trainctl/bench/median.h"
#include "trainctl/config/model_math.h"

namespace trainctl {
namespace {

// Sum over ranks: stages of a pipeline have different products.
double sum_of_ranks(World& world, double of_this_rank) {
    std::int64_t value = std::llround(of_this_rank);
    world.control().all_reduce({&value, 1}, Reduce::Sum);
    return static_cast<double>(value);
}

// nullopt: the device has no graphs, or they are off.
std::optional<CudaGraphUse> graph_use(const Device& device) {
    const auto* cuda = dynamic_cast<const CudaDevice*>(&device);
    if (cuda == nullptr || cuda->graphs() == CudaGraphs::Off) return std::nullopt;
    return cuda->graph_use();
}

// Random tokens, the same batch in every step, so that the loss must fall quickly if the step really trains.
class RepeatedBatch final : public SampleStream {
  public:
    explicit RepeatedBatch(const JobSpec& job) : job_(job) {}
    [[nodiscard]] std::int64_t sequence_length() const override { return job_.training.sequence_length; }
    [[nodiscard]] std::optional<std::int64_t> samples() const override { return std::nullopt; }
    void read(std::int64_t sample, std::span<std::int32_t> window) const override {
        const auto row = static_cast<std::uint64_t>(sample % job_.training.global_batch_size);
        for (std::size_t t = 0; t < window.size(); ++t) {
            const std::uint32_t bits = philox4x32(philox_key(job_.seed), t, row)[0];
            window[t] = static_cast<std::int32_t>(bits % static_cast<std::uint32_t>(job_.model.vocab_size));
        }
    }

  private:
    const JobSpec& job_;
};

}  // namespace

StepBenchResult bench_step(Rank& rank, const JobSpec& job, Clock& clock, const StepBenchOptions& options) {
    OpRecorder recorder(rank.backend->ops(), clock);
    TrainingHooks hooks;
    hooks.wrap_ops = [&recorder](const Ops&) { return recorder.ops(); };
    const RepeatedBatch data(job);
    Training training(rank, job, data, nullptr, clock, hooks);
    training.state().initialise(job.seed);

    Progress progress;
    progress.loss_scale = LossScaler(job.precision).start({});
    const auto take_step = [&] {
        training.runner().fetch(training.train_data(), progress, [] { return false; });
        const StepResult result = training.runner().step(training.train_data(), progress);
        progress.advance(job.training.global_batch_size,
                         job.training.global_batch_size * job.training.sequence_length, result.outcome,
                         result.next_loss_scale);
        return result;
    };
    StepBenchResult result;
    result.loss_first = take_step().loss;  // also warms caches and JIT
    recorder.start();
    take_step();
    const std::vector<OpCall> calls = recorder.stop();
    result.ops = totals_by_name(calls);
    const std::vector<OpCall> products = products_of(calls);
    const auto run_products = [&] {
        for (const OpCall& product : products) product.repeat();
        rank.compute->synchronize();
    };
    run_products();

    std::vector<double> step_times;
    std::vector<double> gemm_times;
    std::vector<StepResult> steps;
    for (int round = 0; round < options.rounds; ++round) {
        rank.world.control().barrier();
        for (int step = 0; step < options.steps_per_round; ++step) {
            const auto before = graph_use(rank.device);
            steps.push_back(take_step());
            if (const auto after = graph_use(rank.device); after && before) {
                result.graphs = CudaGraphUse{after->replayed - before->replayed,
                                             after->issued - before->issued, after->captured, after->refusal};
            }
            step_times.push_back(steps.back().seconds);
        }
        rank.world.control().barrier();
        const double began = clock.monotonic_s();
        run_products();
        gemm_times.push_back(clock.monotonic_s() - began);
    }
    result.ranks = rank.world.size();
    result.threads = rank.device.info().threads;
    result.step_s = median(step_times);
    result.gemm_s = median(gemm_times);
    result.loss_last = steps.back().loss;
    const auto closest =
        std::min_element(steps.begin(), steps.end(), [&](const StepResult& a, const StepResult& b) {
            return std::abs(a.seconds - result.step_s) < std::abs(b.seconds - result.step_s);
        });
    result.phases = closest->phases;
    result.communication_share = closest->phases.communication / closest->seconds;
    const auto tokens = static_cast<double>(job.training.global_batch_size * job.training.sequence_length);
    result.tokens_per_s = tokens / result.step_s;
    result.model_flops_per_s = result.tokens_per_s * flops_per_token(job.model, job.training.sequence_length);
    double product_flops = 0.0;
    for (const OpCall& product : products) product_flops += product.flops;
    result.gemm_flops = sum_of_ranks(rank.world, product_flops);
    result.gemm_flops_per_s = sum_of_ranks(rank.world, product_flops / result.gemm_s);
    result.gemm_share = result.model_flops_per_s / result.gemm_flops_per_s;
    if (!(result.loss_last < result.loss_first)) {
        fail(Exit::Internal,
             fmt::format("bench step: the loss on one repeated batch should fall, it went from {} to {}",
                         result.loss_first, result.loss_last));
    }
    return result;
}

std::string describe(const StepBenchResult& result) {
    std::string text = fmt::format(
        "step            {} on {} x {}\n"
        "tokens/s        {}\n"
        "model           {:.4g} GFLOP/s\n"
        "products alone  {:.4g} GFLOP/s (the step's own, same run)\n"
        "gemm_share      {:.1f} %\n",
        format_seconds(result.step_s), counted(result.ranks, "rank"), counted(result.threads, "thread"),
        format_count(result.tokens_per_s), result.model_flops_per_s / 1e9, result.gemm_flops_per_s / 1e9,
        100.0 * result.gemm_share);
    if (result.gemm_share > 1.0)
        text +=
            "                above 100 %: alone, the products ran slower than within the step: other work on "
            "this "
            "machine disturbed them\n";
    const PhaseSeconds& phases = result.phases;
    text += fmt::format(
        "phases          data {}, forward {}, backward {}, exposed communication {} ({:.3g} %), optimizer "
        "{}\n"
        "loss            {:.4g} -> {:.4g} on one repeated batch\n",
        format_seconds(phases.data), format_seconds(phases.forward), format_seconds(phases.backward),
        format_seconds(phases.communication), 100.0 * result.communication_share,
        format_seconds(phases.optimizer), result.loss_first, result.loss_last);
    if (result.graphs) {
        text += fmt::format("cuda graphs     {} of a step replayed, {} issued call by call\n",
                            counted(static_cast<std::int64_t>(result.graphs->replayed), "section"),
                            result.graphs->issued);
    }
    text += "one more step, waiting for each op:\n";
    for (const OpTotal& total : result.ops) {
        text += fmt::format("  {:<24} {:>5} calls {:>10}", total.name, total.calls,
                            format_seconds(total.seconds));
        if (total.flops > 0.0) text += fmt::format(" {:>9.4g} GFLOP/s", total.flops / total.seconds / 1e9);
        text += '\n';
    }
    return text;
}

std::string to_json(const StepBenchResult& result) {
    std::string ops;
    for (const OpTotal& total : result.ops) {
        ops += fmt::format(R"({}{{"name":{},"calls":{},"seconds":{},"flops":{}}})", ops.empty() ? "" : ",",
                           json_quote(total.name), total.calls, json_number(total.seconds),
                           json_number(total.flops));
    }
    const std::string graphs = result.graphs
                                   ? fmt::format(R"({{"sections_replayed":{},"sections_issued":{}}})",
                                                 result.graphs->replayed, result.graphs->issued)
                                   : "null";
    return fmt::format(
        R"({{"type":"bench_step","v":1,"ranks":{},"threads":{},"step_s":{},"tokens_per_s":{},"model_flops_per_s":{},)"
        R"("gemm_s":{},"gemm_flops":{},"gemm_flops_per_s":{},"gemm_share":{},"loss_first":{},"loss_last":{},"data_s":{},"forward_s":{},)"
        R"("backward_s":{},"communication_s":{},"communication_share":{},"optimizer_s":{},"cuda_graphs":{},"ops":[{}]}})",
        result.ranks, result.threads, json_number(result.step_s), json_number(result.tokens_per_s),
        json_number(result.model_flops_per_s), json_number(result.gemm_s), json_number(result.gemm_flops),
        json_number(result.gemm_flops_per_s), json_number(result.gemm_share), json_number(result.loss_first),
        json_number(result.loss_last), json_number(result.phases.data), json_number(result.phases.forward),
        json_number(result.phases.backward), json_number(result.phases.communication),
        json_number(result.communication_share), json_number(result.phases.optimizer), graphs, ops);
}

}  // namespace trainctl
