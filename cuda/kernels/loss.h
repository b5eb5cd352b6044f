// Softmax and cross-entropy over rows of logits, gradients in place, as in LossOps (trainctl/ops/ops.h).
// Asynchronous on `stream`.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "trainctl/ops/ops.h"

namespace trainctl::cuda {

struct LogitRows {
    DType dtype;
    void* logits;                 // [rows, width]
    const std::int32_t* targets;  // [rows]; null for row_maxima
    std::int64_t rows;
    std::int64_t width;
    std::int64_t vocab;  // logical columns among those at hand: 0 .. width
    std::int64_t first_column;
    float gradient_scale;
    LossPass pass;
};

void cross_entropy(const LogitRows& a, float* losses, cudaStream_t stream);

// maxima[rows], sums[rows, 2]
void row_maxima(const LogitRows& a, float* maxima, cudaStream_t stream);
void exponential_sums(const LogitRows& a, float* sums, const float* maxima, cudaStream_t stream);
void finish_cross_entropy(const LogitRows& a, float* losses, const float* maxima, const float* sums,
                          cudaStream_t stream);

// total (=, +=) sum of losses[count], in an order that depends on count alone.
void sum_losses(double* total, const float* losses, std::int64_t count, Into into, cudaStream_t stream);

}  // namespace trainctl::cuda
