// Activations, bias gradients, additions, dropout and casts, as in ElementwiseOps (trainctl/ops/ops.h). One
// pass over memory each. Tensors are [rows, width] of `dtype`. Asynchronous on `stream`.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "trainctl/ops/ops.h"

namespace trainctl::cuda {

struct BiasGelu {
    DType dtype;
    const void* x;
    const void* bias;  // [width]
    std::int64_t rows;
    std::int64_t width;
};
void bias_gelu_forward(const BiasGelu& a, void* y, cudaStream_t stream);
// partials: [column_parts(rows, width), width]
void bias_gelu_backward(const BiasGelu& a, void* dx, float* dbias, const void* dy, float* partials, Into into,
                        cudaStream_t stream);
// partials as above
void bias_backward(DType dtype, float* dbias, const void* dy, float* partials, std::int64_t rows,
                   std::int64_t width, Into into, cudaStream_t stream);

// y, dy [rows, width]; gate_up, dgate_up [rows, 2 width]
void swiglu_forward(DType dtype, void* y, const void* gate_up, std::int64_t rows, std::int64_t width,
                    cudaStream_t stream);
void swiglu_backward(DType dtype, void* dgate_up, const void* dy, const void* gate_up, std::int64_t rows,
                     std::int64_t width, cudaStream_t stream);

void add(DType dtype, void* y, const void* a, const void* b, std::int64_t count, cudaStream_t stream);
void cast(DType to_dtype, void* to, DType from_dtype, const void* from, std::int64_t count,
          cudaStream_t stream);
void dropout(DType dtype, void* y, const void* x, std::int64_t rows, std::int64_t width,
             std::int64_t rows_per_sample, const Dropout& site, cudaStream_t stream);

}  // namespace trainctl::cuda
