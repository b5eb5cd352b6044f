// Sums and maxima over the threads of a warp or block, in an order that depends on nothing but the block's
// size.
#pragma once

#include "cuda/intrinsics.h"

namespace trainctl::cuda {

// Warp: every lane gets the result.
template <class T>
__device__ T warp_sum(T value) {
    for (int mask = warp_size / 2; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
    return value;
}
__device__ inline float warp_max(float value) {
    for (int mask = warp_size / 2; mask > 0; mask /= 2) value = fmaxf(value, shuffle_xor(value, mask));
    return value;
}

// Block of `warps` whole warps: every thread gets the result. `partial` is shared memory of `warps` elements,
// free to be used again after the next sync_block().
template <int warps, class T>
__device__ T block_sum(T value, T* partial) {
    value = warp_sum(value);
    if (threadIdx.x % warp_size == 0) partial[threadIdx.x / warp_size] = value;
    sync_block();
    T total = partial[0];
    for (int warp = 1; warp < warps; ++warp) total += partial[warp];
    return total;
}
template <int warps>
__device__ float block_max(float value, float* partial) {
    value = warp_max(value);
    if (threadIdx.x % warp_size == 0) partial[threadIdx.x / warp_size] = value;
    sync_block();
    float largest = partial[0];
    for (int warp = 1; warp < warps; ++warp) largest = fmaxf(largest, partial[warp]);
    return largest;
}

}  // namespace trainctl::cuda
