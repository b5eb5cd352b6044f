// The global gradient norm and AdamW, as in OptimizerOps (trainctl/ops/ops.h). Everything a step decides
// stays on the device. Asynchronous on `stream`.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "trainctl/ops/ops.h"

namespace trainctl::cuda {

// bins[norm_bins] (=, +=)
void sum_squares(std::int64_t* bins, const float* gradient, std::int64_t count, Into into,
                 cudaStream_t stream);

// scalars[step_scalars] from bins and scalars[scalar_loss_sum]
void finish_norm(double* scalars, const std::int64_t* bins, double max_norm, double inverse_loss_scale,
                 cudaStream_t stream);

struct AdamwUpdate {
    DType weight_dtype;
    void* weights;  // [count]; null: master is the weight
    float* master;
    float* m;
    float* v;
    const float* gradient;
    const std::uint8_t* flags;  // one per norm_block elements
    const double* scalars;
    std::int64_t count;
    float beta1;
    float other1;  // 1 - beta1
    float beta2;
    float other2;             // 1 - beta2
    float step_size;          // lr / (1 - beta1^t)
    float inverse_root_bias;  // 1 / sqrt(1 - beta2^t)
    float epsilon;
    float decay;  // lr x weight decay
};
void adamw(const AdamwUpdate& a, cudaStream_t stream);

}  // namespace trainctl::cuda
