// What is known about one step once it is closed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainctl/observe/gpu_record.h"

namespace trainctl {

// Wall seconds of the compute thread, disjoint; their sum is at most the step's time.
struct PhaseSeconds {
    double data = 0.0;           // waiting for the loader
    double forward = 0.0;        // including the loss
    double backward = 0.0;       // including the head's gradient
    double communication = 0.0;  // exposed only: the compute stream waiting for a message
    double optimizer = 0.0;
    double checkpoint = 0.0;  // saving, after the step
    double evaluation = 0.0;
};

// Where a peak comes from.
enum class PeakSource { Measured, DataSheet };

struct StepRecord {
    std::int64_t attempt = 0;
    std::int64_t step = 0;  // 1-based: steps completed after this one
    std::int64_t total = 0;
    double loss = 0.0;       // mean over the target tokens of the global batch, nats
    double grad_norm = 0.0;  // before clipping, of the unscaled gradient
    double clip = 1.0;
    double lr = 0.0;
    std::optional<double> loss_scale;  // fp16 only: what this step's gradient was multiplied by
    bool applied = true;               // false: non-finite, the update was skipped
    std::int64_t skipped = 0;          // in the whole run so far
    std::int64_t applied_updates = 0;  // in the whole run so far
    std::int64_t samples = 0;          // consumed so far
    std::int64_t tokens = 0;           // consumed so far
    double step_s = 0.0;               // wall time of the step, without evaluation and checkpoint
    double tokens_per_s = 0.0;         // all ranks
    double model_flops_per_s = 0.0;    // all ranks; exact causal model FLOPs, no recompute, no padding
    double palm_flops_per_s = 0.0;     // the same with full attention, as PaLM and nanoGPT count
    double peak_flops_per_s = 0.0;     // all ranks, in the compute dtype; 0: unknown
    PeakSource peak_source = PeakSource::Measured;  // a large product at the start, or the data sheet
    PhaseSeconds phases;
    std::uint64_t device_bytes = 0;
    std::uint64_t host_bytes = 0;  // resident set of this process
    GpuRecord gpu;                 // of rank 0; empty on the cpu
    GpuExtremes gpus;              // of all ranks, as they were when the step began
    double unix_s = 0.0;

    // Model FLOPs utilisation: model_flops_per_s / peak_flops_per_s; nullopt if the peak is unknown.
    [[nodiscard]] std::optional<double> mfu() const {
        if (peak_flops_per_s <= 0.0) return std::nullopt;
        return model_flops_per_s / peak_flops_per_s;
    }
};

// One save that came to its end, well or not.
struct CheckpointRecord {
    std::int64_t attempt = 0;
    std::int64_t step = 0;
    std::string directory;  // empty: it failed
    std::string error;      // why
    std::uint64_t bytes = 0;
    std::uint64_t state_hash = 0;
    double stall_s = 0.0;      // how long training stood still for it
    double seconds = 0.0;      // of writing, from the first byte to the commit
    double age_s = 0.0;        // of the state when it was committed
    std::int64_t skipped = 0;  // saves of this attempt that were left out because another was being written
    double unix_s = 0.0;
};

// One copy of a checkpoint to a further place that came to its end, well or not.
struct CopyRecord {
    std::int64_t attempt = 0;
    std::int64_t step = 0;
    std::string tier;  // as the job file has it
    std::string directory;
    std::string error;          // why it failed
    std::uint64_t bytes = 0;    // 0: the copy was there already
    double seconds = 0.0;       // of copying
    std::int64_t left_out = 0;  // checkpoints that did not go there because another copy was being made
    std::vector<std::string> removed;  // for the log: old copies
    std::vector<std::string> warnings;
    double unix_s = 0.0;
};

struct EvaluationRecord {
    std::int64_t attempt = 0;
    std::int64_t step = 0;
    double loss = 0.0;
    std::int64_t tokens = 0;  // target tokens evaluated, all ranks
    double seconds = 0.0;
    double unix_s = 0.0;
};

}  // namespace trainctl
