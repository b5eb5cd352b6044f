#include "trainctl/bench/memory_bench.h"

#include <fmt/format.h>

#include <cmath>
#include <string_view>

#include "bench/activation_bound.h"
#include "trainctl/base/text.h"
#include "trainctl/config/model_math.h"
#include "trainctl/model/unit_layout.h"
#include "trainctl/train/dry_pass.h"

namespace trainctl {
namespace {

constexpr double tolerance = 0.02;

// Where a dry pass's owner of memory is counted.
std::uint64_t ModelStateRow::*buffer_of(std::string_view what) {
    if (what == "gradient slots" || what == "gradient images" || what == "packed gradient bucket")
        return &ModelStateRow::gradient_buckets;
    if (what == "gathered units") return &ModelStateRow::gathered_units;
    if (what == "optimizer block flags" || what == "gradient norm") return &ModelStateRow::flags;
    return &ModelStateRow::other;
}

bool is_model_state(std::string_view what) {
    return what == "weights" || what == "master weights" || what == "optimizer first moment" ||
           what == "optimizer second moment" || what == "gradients";
}

// With 16-bit weights 18, 6 + 12/d, 2 + 16/d and 18/d; f32 weights are their own master.
double bytes_per_parameter(int zero_stage, int data_ranks, DType compute) {
    const auto weights = static_cast<double>(dtype_size(compute));
    const double optimizer = compute == DType::F32 ? 8.0 : 12.0;
    constexpr double gradients = 4.0;
    const auto held = [&](int sharded_from) { return zero_stage >= sharded_from ? 1.0 / data_ranks : 1.0; };
    return weights * held(3) + gradients * held(2) + optimizer * held(1);
}

std::string_view name_of(GradientCheckpointing checkpointing) {
    switch (checkpointing) {
        case GradientCheckpointing::None:
            return "none";
        case GradientCheckpointing::Selective:
            return "selective";
        case GradientCheckpointing::Full:
            return "full";
    }
    return "";
}

DryPass dry_pass_of(const JobSpec& job, int data_ranks, Ops planned) {
    BatchLayout layout;
    layout.micro_batch = job.training.micro_batch_size;
    layout.global_batch = layout.micro_batch * data_ranks;
    layout.ranks = data_ranks;
    return dry_pass(job, {data_ranks, 1, 1}, {0, 0, 0}, layout, planned);
}

ModelStateRow state_row(JobSpec job, int zero_stage, int data_ranks, Ops planned) {
    job.memory.zero_stage = zero_stage;
    ModelStateRow row;
    row.zero_stage = zero_stage;
    row.data_ranks = data_ranks;
    row.expected = bytes_per_parameter(zero_stage, data_ranks, job.precision.compute);
    std::uint64_t states = 0;
    for (const MemoryRow& held : dry_pass_of(job, data_ranks, planned).memory) {
        if (held.what == "activations") continue;
        if (is_model_state(held.what)) {
            states += held.bytes;
        } else {
            row.*buffer_of(held.what) += held.bytes;
        }
    }
    row.found = static_cast<double>(states) / static_cast<double>(parameter_count(job.model));
    return row;
}

ActivationRow activation_row(JobSpec job, GradientCheckpointing checkpointing, Ops planned) {
    job.memory.gradient_checkpointing = checkpointing;
    job.memory.checkpoint_every_blocks = 1;
    const ActivationBound bound = activation_bound(job, planned);
    ActivationRow row;
    row.checkpointing = checkpointing;
    row.kept_per_block = bound.kept_per_block;
    row.at_most = bound.total(job.model.layers);
    row.found = dry_pass_of(job, 1, planned).activations.peak_bytes;
    return row;
}

// A share that grows with the ranks: parts are padded to equal size.
void refuse_padding(const ModelSpec& model, int data_ranks) {
    std::int64_t allocated = 0;
    for (const UnitLayout& unit : unit_layouts(model_parameters(model), data_ranks)) allocated += unit.padded;
    const auto parameters = static_cast<double>(parameter_count(model));
    const double padding = static_cast<double>(allocated) / parameters - 1.0;
    if (padding <= tolerance) return;
    fail(Exit::Usage,
         fmt::format(
             "bench memory: expected a model whose padding is at most {:.0f} % of its parameters, found "
             "{:.1f} % of {:.0f} on {}; choose a larger --preset",
             100.0 * tolerance, 100.0 * padding, parameters, counted(data_ranks, "rank")));
}

std::string_view verdict(bool ok) { return ok ? "ok" : "WRONG"; }

}  // namespace

bool ModelStateRow::ok() const { return std::abs(found - expected) <= tolerance * expected; }

MemoryBenchResult bench_memory(const JobSpec& job, Ops planned, const MemoryBenchOptions& options) {
    for (const int ranks : options.data_ranks) refuse_padding(job.model, ranks);
    MemoryBenchResult result;
    result.parameters = parameter_count(job.model);
    for (const int stage : {0, 1, 2, 3})
        for (const int ranks : options.data_ranks)
            result.states.push_back(state_row(job, stage, ranks, planned));
    for (const GradientCheckpointing checkpointing :
         {GradientCheckpointing::None, GradientCheckpointing::Selective, GradientCheckpointing::Full})
        result.activations.push_back(activation_row(job, checkpointing, planned));
    return result;
}

std::vector<std::string> MemoryBenchResult::failures() const {
    std::vector<std::string> found;
    for (const ModelStateRow& row : states) {
        if (row.ok()) continue;
        found.push_back(fmt::format(
            "ZeRO {} on {}: expected {:.4g} bytes per parameter within {:.0f} %, found {:.4g}",
            row.zero_stage, counted(row.data_ranks, "rank"), row.expected, 100.0 * tolerance, row.found));
    }
    for (const ActivationRow& row : activations) {
        if (row.ok()) continue;
        found.push_back(fmt::format("activations, checkpointing {}: expected at most {} bytes, found {}",
                                    name_of(row.checkpointing), row.at_most, row.found));
    }
    return found;
}

std::string describe(const MemoryBenchResult& result) {
    std::string text = fmt::format(
        "model states of one rank, bytes per parameter of {} (within {:.0f} %), and the buffers besides\n"
        "{:<5} {:>5} {:>9} {:>9} {:<5} {:>16} {:>14} {:>11} {:>11}\n",
        result.parameters, 100.0 * tolerance, "ZeRO", "ranks", "expected", "found", "", "gradient buckets",
        "gathered units", "flags", "other");
    for (const ModelStateRow& row : result.states)
        text += fmt::format("{:<5} {:>5} {:>9.4f} {:>9.4f} {:<5} {:>16} {:>14} {:>11} {:>11}\n",
                            row.zero_stage, row.data_ranks, row.expected, row.found, verdict(row.ok()),
                            format_bytes(row.gradient_buckets), format_bytes(row.gathered_units),
                            format_bytes(row.flags), format_bytes(row.other));
    text += fmt::format("activations of one micro-batch, bytes\n{:<14} {:>16} {:>16} {:>16}\n",
                        "checkpointing", "kept per block", "at most", "found");
    for (const ActivationRow& row : result.activations)
        text += fmt::format("{:<14} {:>16} {:>16} {:>16}  {}\n", name_of(row.checkpointing),
                            row.kept_per_block, row.at_most, row.found, verdict(row.ok()));
    return text;
}

std::string to_json(const MemoryBenchResult& result) {
    std::string states;
    for (const ModelStateRow& row : result.states) {
        states += fmt::format(
            R"({}{{"zero_stage":{},"data_ranks":{},"expected":{},"found":{},"ok":{},"gradient_buckets":{},)"
            R"("gathered_units":{},"flags":{},"other":{}}})",
            states.empty() ? "" : ",", row.zero_stage, row.data_ranks, json_number(row.expected),
            json_number(row.found), row.ok(), row.gradient_buckets, row.gathered_units, row.flags, row.other);
    }
    std::string activations;
    for (const ActivationRow& row : result.activations)
        activations +=
            fmt::format(R"({}{{"checkpointing":{},"kept_per_block":{},"at_most":{},"found":{},"ok":{}}})",
                        activations.empty() ? "" : ",", json_quote(name_of(row.checkpointing)),
                        row.kept_per_block, row.at_most, row.found, row.ok());
    return fmt::format(
        R"({{"type":"bench_memory","v":1,"ok":{},"parameters":{},"states":[{}],"activations":[{}]}})",
        result.failures().empty(), result.parameters, states, activations);
}

}  // namespace trainctl
