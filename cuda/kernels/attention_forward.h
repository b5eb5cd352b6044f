// Causal attention, forward.
#pragma once

#include <cuda_runtime_api.h>

#include "trainctl/ops/ops.h"

namespace trainctl::cuda {

// out[batch x length, heads x head_dim] and lse[batch, heads, length] from packed qkv (see AttentionOps).
// BF16 and F16 run on tensor cores, F32 does not. settings.scale > 0, head_dim at most
// cuda_largest_head.
void attention_forward(void* out, float* lse, const void* qkv, DType dtype, const AttentionSettings& settings,
                       cudaStream_t stream);

}  // namespace trainctl::cuda
