// Residual addition fused with LayerNorm or RMSNorm, and its backward. Tensors as in NormOps
// (trainctl/ops/ops.h); an absent one is null. Asynchronous on `stream`.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "trainctl/ops/ops.h"

namespace trainctl::cuda {

struct NormForward {
    DType dtype;
    void* y;             // [rows, width]
    void* residual_out;  // [rows, width], written if there is a branch
    float* statistics;   // [rows, 2]
    const void* residual_in;
    const void* branch;
    const void* gain;  // [width]
    const void* bias;
    std::int64_t rows;
    std::int64_t width;
    NormSettings settings;
};
void norm_forward(const NormForward& a, cudaStream_t stream);

struct NormBackward {
    DType dtype;
    void* dresidual_in;  // [rows, width]; may be dresidual_out
    float* dgain;        // [width]
    float* dbias;
    const void* dy;
    const void* dresidual_out;
    const void* residual;
    const float* statistics;
    const void* gain;
    float* partials;  // [norm_partials(rows), 2, width]
    std::int64_t rows;
    std::int64_t width;
    NormKind kind;
    Into into;
};
void norm_backward(const NormBackward& a, cudaStream_t stream);

// How many partial sums of the gradients of gain and bias there are at most.
std::int64_t norm_partials(std::int64_t rows);

}  // namespace trainctl::cuda
