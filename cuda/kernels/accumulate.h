// Adds what a communicator brought to what is there.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "trainctl/tensor/dtype.h"
#include "trainctl/tensor/into.h"

namespace trainctl::cuda {

// to[i] F32 (=, +=) from[i] (F32, BF16 or F16) for `count` elements.
void accumulate(cudaStream_t stream, float* to, const void* from, DType dtype, std::int64_t count, Into into);

}  // namespace trainctl::cuda
