// Attention in F32, without tensor cores: for jobs that compute in F32, correct rather than fast. Sizes as in
// attention_forward.h and attention_backward.h.
#pragma once

#include <cuda_runtime_api.h>

#include "trainctl/ops/ops.h"

namespace trainctl::cuda {

void attention_forward_f32(float* out, float* lse, const float* qkv, const AttentionSettings& settings,
                           cudaStream_t stream);
void attention_backward_f32(float* dqkv, const float* dout, const float* out, const float* lse,
                            const float* qkv, float* delta, const AttentionSettings& settings,
                            cudaStream_t stream);

}  // namespace trainctl::cuda
