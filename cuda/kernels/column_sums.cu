#include <algorithm>

#include "cuda/intrinsics.h"
#include "cuda/kernels/column_sums.h"
#include "cuda/launch.h"

namespace trainctl::cuda {
namespace {

// A block has 32 columns; each of its warps adds every 16th part, in order, and the warps' sums are added in
// order.
constexpr int warps = 16;

__global__ void __launch_bounds__(warps* warp_size)
    sum_partials(float* result, const float* partials, std::int64_t count, std::int64_t stride,
                 std::int64_t width, Into into) {
    auto* sums = shared_memory<float>();
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
    const int warp = static_cast<int>(threadIdx.x) / warp_size;
    const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * warp_size + lane;
    float sum = 0.0F;
    if (column < width) {
#pragma unroll 4
        for (std::int64_t part = warp; part < count; part += warps) sum += partials[part * stride + column];
    }
    sums[warp * warp_size + lane] = sum;
    sync_block();
    if (warp > 0 || column >= width) return;
    for (int other = 1; other < warps; ++other) sum += sums[other * warp_size + lane];
    result[column] = into == Into::Accumulate ? result[column] + sum : sum;
}

}  // namespace

std::int64_t column_parts(std::int64_t rows, std::int64_t width) {
    // Eight blocks for each multiprocessor of the largest devices, but parts of 64 rows at least: the partial
    // sums stay small beside the tensors.
    const std::int64_t columns = (width + 255) / 256;
    return std::min((rows + 63) / 64, std::max<std::int64_t>(1056 / columns, 8));
}

void add_partials(float* result, const float* partials, std::int64_t count, std::int64_t stride,
                  std::int64_t width, Into into, cudaStream_t stream) {
    const LaunchShape shape{dim3(blocks_for(width, warp_size)), dim3(warps * warp_size),
                            warps * warp_size * sizeof(float), stream};
    launch("sum_partials", shape, &sum_partials, result, partials, count, stride, width, into);
}

}  // namespace trainctl::cuda
