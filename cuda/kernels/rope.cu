#include <algorithm>

#include "cuda/kernels/rope.h"
#include "cuda/lanes.h"
#include "cuda/launch.h"
#include "cuda/storage.h"

namespace trainctl::cuda {
namespace {

constexpr unsigned threads = 256;

// One block per row. Threads in x have n pairs (i, i + head_dim / 2) each, whose angles they read once;
// threads in y share the heads.
template <class T, int n>
__global__ void __launch_bounds__(threads) rotate(Rope a) {
    const std::int64_t half = a.head_dim / 2;
    const std::int64_t row = blockIdx.x;
    T* first_head = static_cast<T*>(a.qkv) + row * (a.heads + 2 * a.kv_heads) * a.head_dim;
    const float* angles = a.table + row % a.length * a.head_dim;
    for (std::int64_t pair = static_cast<std::int64_t>(threadIdx.x) * n; pair < half;
         pair += static_cast<std::int64_t>(blockDim.x) * n) {
        float cosine[n];
        float sine[n];
        if constexpr (n == 1) {
            cosine[0] = angles[2 * pair];
            sine[0] = angles[2 * pair + 1];
        } else {
#pragma unroll
            for (int i = 0; i < n; i += 2) {
                float turns[4];
                load<4>(angles + 2 * (pair + i), turns);
                cosine[i] = turns[0];
                sine[i] = turns[1];
                cosine[i + 1] = turns[2];
                sine[i + 1] = turns[3];
            }
        }
        if (a.direction == RopeDirection::Backward) {
#pragma unroll
            for (int i = 0; i < n; ++i) sine[i] = -sine[i];
        }
        for (std::int64_t head = threadIdx.y; head < a.heads + a.kv_heads; head += blockDim.y) {
            T* at = first_head + head * a.head_dim + pair;
            float left[n];
            float right[n];
            load<n>(at, left);
            load<n>(at + half, right);
            float turned[n];
#pragma unroll
            for (int i = 0; i < n; ++i) {
                turned[i] = fused_multiply_add(-right[i], sine[i], left[i] * cosine[i]);
                right[i] = fused_multiply_add(left[i], sine[i], right[i] * cosine[i]);
            }
            store(at, turned);
            store(at + half, right);
        }
    }
}

template <class T, int n>
void run(const Rope& a, cudaStream_t stream) {
    const auto wide = static_cast<unsigned>(std::clamp<std::int64_t>(a.head_dim / 2 / n, 1, threads));
    // As many turns as 256 threads need, each with as many heads.
    const std::int64_t all = a.heads + a.kv_heads;
    const unsigned heads = blocks_for(all, blocks_for(all, threads / wide));
    launch("rope", {dim3(blocks_for(a.rows, 1)), dim3(wide, heads), 0, stream}, &rotate<T, n>, a);
}

}  // namespace

void rope(const Rope& a, cudaStream_t stream) {
    if (a.rows == 0) return;
    with_storage(a.dtype, [&]<class T>(T*) {
        packable<T>(a.head_dim / 2, {a.qkv, a.table}) ? run<T, Pack<T>::size>(a, stream)
                                                      : run<T, 1>(a, stream);
    });
}

}  // namespace trainctl::cuda
