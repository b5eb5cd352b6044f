// Causal attention, backward.
#pragma once

#include <cuda_runtime_api.h>

#include "trainctl/ops/ops.h"

namespace trainctl::cuda {

// All of dqkv[batch x length, (heads + 2 kv_heads) x head_dim] from the gradient of attention_forward's
// output and its results. delta [batch, heads, length] is scratch: dout . out of every row. Demands as
// attention_forward.
void attention_backward(void* dqkv, const void* dout, const void* out, const float* lse, const void* qkv,
                        float* delta, DType dtype, const AttentionSettings& settings, cudaStream_t stream);

}  // namespace trainctl::cuda
