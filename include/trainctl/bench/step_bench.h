// `trainctl bench step`: whole training steps, judged against the matrix products they are made of, measured
// in the same run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainctl/bench/op_recorder.h"
#include "trainctl/device/cuda_device.h"
#include "trainctl/train/training.h"

namespace trainctl {

struct StepBenchOptions {
    int rounds = 5;  // each: some steps, then the step's products alone; medians are reported
    int steps_per_round = 2;
};

struct StepBenchResult {
    int ranks = 1;
    int threads = 1;
    double step_s = 0.0;             // median
    double tokens_per_s = 0.0;       // all ranks
    double model_flops_per_s = 0.0;  // all ranks
    double gemm_s = 0.0;            // median time of one step's products alone, on its own tensors, this rank
    double gemm_flops = 0.0;        // of one step's products, all ranks
    double gemm_flops_per_s = 0.0;  // FLOP / time of each rank's products, summed over ranks
    double gemm_share = 0.0;        // model_flops_per_s / gemm_flops_per_s
    double loss_first = 0.0;
    double loss_last = 0.0;            // on one repeated batch: must fall
    PhaseSeconds phases;               // of the median step
    double communication_share = 0.0;  // exposed communication of that step, of its time
    // Sections of a measured step on this rank's GPU, with device.cuda_graphs.
    std::optional<CudaGraphUse> graphs;
    std::vector<OpTotal> ops;  // of one step that waited for each op
};

// Collective. The job's model, batch and precision; tokens are random but fixed. Verifies that the loss on
// the repeated batch falls (Exit::Internal otherwise): a step that computes nothing is not fast.
StepBenchResult bench_step(Rank& rank, const JobSpec& job, Clock& clock, const StepBenchOptions& options);

std::string describe(const StepBenchResult& result);
std::string to_json(const StepBenchResult& result);

}  // namespace trainctl
