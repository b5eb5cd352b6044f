// Sums over rows in two stages: kernels write partial sums of some rows each, whose number depends on shapes
// only; these are then added in order. No atomics, so the same bits every time.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "trainctl/tensor/into.h"

namespace trainctl::cuda {

// How many partial sums kernels make that walk over tiles (tiles.h).
std::int64_t column_parts(std::int64_t rows, std::int64_t width);

// result[width] (=, +=) sum of partials[0 .. count - 1], of which part i begins at partials + i x stride.
// Asynchronous.
void add_partials(float* result, const float* partials, std::int64_t count, std::int64_t stride,
                  std::int64_t width, Into into, cudaStream_t stream);

}  // namespace trainctl::cuda
