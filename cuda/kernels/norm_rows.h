// How norm kernels spread rows over threads. Rows of up to 16 KiB stay in registers, two packs to a thread,
// and are read once; a group of 1 to 16 warps has a row, and a block has as many groups as make 8 warps.
// Other rows (longer, or off the grid of 16 bytes) take kernels that have one block per row and read it again
// for every pass.
#pragma once

#include "cuda/lanes.h"
#include "cuda/reduce.h"

namespace trainctl::cuda {

constexpr int any_row_warps = 8;  // of a block that has a row of any length

template <class T, int warps>
struct RowGroup {
    static constexpr int size = Pack<T>::size;
    static constexpr int packs = 2;  // of one thread
    static constexpr int threads = warps * warp_size;
    static constexpr int block_warps = warps < 8 ? 8 : warps;
    static constexpr int block_threads = block_warps * warp_size;
    static constexpr int groups = block_warps / warps;
    static constexpr int most = packs * size * threads;  // elements of a row

    __device__ static int thread() { return static_cast<int>(threadIdx.x) % threads; }
    __device__ static int group() { return static_cast<int>(threadIdx.x) / threads; }
    // Where this thread's pack begins.
    __device__ static int column(int pack) { return (pack * threads + thread()) * size; }

    // Sum over the row's group, for all groups of the block together. `partial`: block_warps floats of shared
    // memory, free again after the next sync_block().
    __device__ static float sum(float value, float* partial) {
        value = warp_sum(value);
        if constexpr (warps == 1) return value;
        partial[threadIdx.x / warp_size] = value;
        sync_block();
        return sum_of_warps(partial);
    }
    // Two sums with one barrier; 2 x block_warps floats.
    __device__ static void sum_both(float& a, float& b, float* partial) {
        a = warp_sum(a);
        b = warp_sum(b);
        if constexpr (warps == 1) return;
        partial[threadIdx.x / warp_size] = a;
        partial[block_warps + threadIdx.x / warp_size] = b;
        sync_block();
        a = sum_of_warps(partial);
        b = sum_of_warps(partial + block_warps);
    }

  private:
    // Lanes take a warp's sum each, and all of them get the total.
    __device__ static float sum_of_warps(const float* partial) {
        float value = partial[group() * warps + thread() % warps];
        for (int mask = warps / 2; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
        return value;
    }
};

// body(RowGroup tag) with the fewest warps that hold a row; false if none does.
template <class T, class Body>
bool with_row_group(std::int64_t width, const Body& body) {
    if (width <= RowGroup<T, 1>::most) return body(RowGroup<T, 1>{}), true;
    if (width <= RowGroup<T, 2>::most) return body(RowGroup<T, 2>{}), true;
    if (width <= RowGroup<T, 4>::most) return body(RowGroup<T, 4>{}), true;
    if (width <= RowGroup<T, 8>::most) return body(RowGroup<T, 8>{}), true;
    if (width <= RowGroup<T, 16>::most) return body(RowGroup<T, 16>{}), true;
    return false;
}

}  // namespace trainctl::cuda
