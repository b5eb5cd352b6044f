// `trainctl bench memory`: what one rank holds, as a dry pass of the real runtime finds it, judged by
// arithmetic on the model's dimensions alone. Nothing is allocated and nothing is timed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainctl/config/job_spec.h"
#include "trainctl/ops/ops.h"

namespace trainctl {

struct MemoryBenchOptions {
    std::vector<int> data_ranks = {1, 2, 4, 8};
};

// Weights, gradients, master weights and moments of rank 0 at one ZeRO stage.
struct ModelStateRow {
    int zero_stage = 0;
    int data_ranks = 1;
    double expected = 0.0;  // bytes per parameter
    double found = 0.0;     // bytes per parameter
    // What the rank holds besides, in bytes.
    std::uint64_t gradient_buckets = 0;  // slots, images, packed bucket
    std::uint64_t gathered_units = 0;
    std::uint64_t flags = 0;  // of blocks of the optimizer, and the norm
    std::uint64_t other = 0;  // batches, scalars, staging of messages, tables; not activations

    // Within 2 %: vocabulary and parts are padded.
    [[nodiscard]] bool ok() const;
};

// Activations of one rank at one kind of checkpointing.
struct ActivationRow {
    GradientCheckpointing checkpointing = GradientCheckpointing::None;
    std::uint64_t kept_per_block = 0;  // bytes that a block leaves for its backward
    std::uint64_t at_most = 0;         // bytes: activation_bound()
    std::uint64_t found = 0;           // bytes: the arena's peak

    [[nodiscard]] bool ok() const { return found <= at_most; }
};

struct MemoryBenchResult {
    std::int64_t parameters = 0;
    std::vector<ModelStateRow> states;
    std::vector<ActivationRow> activations;

    [[nodiscard]] std::size_t checks() const { return states.size() + activations.size(); }
    // What is not as expected, with the numbers; empty if everything is.
    [[nodiscard]] std::vector<std::string> failures() const;
};

// The job's model, batch, precision and communication settings; its ZeRO stage, checkpointing and numbers of
// ranks are replaced by the cases. `planned` are the ops whose scratch counts as activations. Not collective.
// Exit::Usage for a model so small that padding alone exceeds the tolerance.
MemoryBenchResult bench_memory(const JobSpec& job, Ops planned, const MemoryBenchOptions& options);

std::string describe(const MemoryBenchResult& result);
std::string to_json(const MemoryBenchResult& result);

}  // namespace trainctl
