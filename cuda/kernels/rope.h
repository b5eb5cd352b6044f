// Rotary position embedding in place, as in AttentionOps::rope (trainctl/ops/ops.h). Asynchronous on
// `stream`.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "trainctl/ops/ops.h"

namespace trainctl::cuda {

struct Rope {
    DType dtype;
    void* qkv;           // [rows, (heads + kv_heads + kv_heads) x head_dim]: the first heads + kv_heads turn
    const float* table;  // [length, head_dim / 2, 2]: cosine and sine
    std::int64_t rows;   // a whole number of sequences of `length`
    std::int64_t length;
    std::int64_t heads;
    std::int64_t kv_heads;
    std::int64_t head_dim;  // even
    RopeDirection direction;
};
void rope(const Rope& a, cudaStream_t stream);

}  // namespace trainctl::cuda
