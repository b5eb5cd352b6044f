// Batch identity: micro_batch_size x data-parallel ranks x accumulation steps = global_batch_size.
#pragma once

#include <cstdint>

#include "trainctl/base/result.h"
#include "trainctl/config/job_spec.h"

namespace trainctl {

// The four terms; in a question 0 is an unknown, in an answer nothing is 0 (but see solve_batch).
struct BatchPlan {
    std::int64_t micro_batch_size = 0;    // samples per rank and micro-batch
    std::int64_t data_parallel_size = 0;  // ranks
    std::int64_t accumulation_steps = 0;  // micro-batches per step
    std::int64_t global_batch_size = 0;   // samples per step

    bool operator==(const BatchPlan& other) const = default;
};

// Derives the unknown terms. Known terms are never changed; where two are free, accumulation is 1. Without
// data_parallel_size what cannot be known stays 0. Error (Exit::Usage) with all the numbers when no whole
// numbers fit, a derived global batch is beyond 2^30, or neither micro nor global is known. Precondition:
// micro, ranks and accumulation are at most 2^20 each.
Result<BatchPlan> solve_batch(const BatchPlan& known);

// The batch of a resolved job on `world_size` ranks. Throws Error(Exit::Usage) with the numbers.
BatchPlan plan_batch(const JobSpec& job, std::int64_t world_size);

// world_size / (tensor x pipeline), checked against parallel.data_parallel_size. Error (Exit::Usage) with the
// numbers.
Result<std::int64_t> data_parallel_ranks(const ParallelSpec& parallel, std::int64_t world_size);

}  // namespace trainctl
