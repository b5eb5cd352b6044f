// AdamW in one pass over memory.
#include <cfloat>

#include "cuda/kernels/optimizer.h"
#include "cuda/lanes.h"
#include "cuda/launch.h"
#include "cuda/storage.h"

namespace trainctl::cuda {
namespace {

constexpr int threads = 256;

// Moments of embedding rows that are not seen for long would decay to subnormals and, rounded to nearest,
// stay there for ever. The cpu backend keeps none either.
__device__ float without_subnormals(float x) { return fabsf(x) < FLT_MIN ? 0.0F : x; }

// n consecutive elements per thread; n divides norm_block.
template <class W, int n>
__global__ void __launch_bounds__(threads) update(AdamwUpdate a) {
    const std::int64_t begin = (static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x) * n;
    if (begin >= a.count) return;
    // Everything is read before it is known whether the update applies: nothing waits for the scalars.
    float gradient[n];
    float m[n];
    float v[n];
    float master[n];
    load<n>(a.gradient + begin, gradient);
    load<n>(a.m + begin, m);
    load<n>(a.v + begin, v);
    load<n>(a.master + begin, master);
    const float decay = (a.flags[begin / norm_block] & block_decays) != 0 ? a.decay : 0.0F;
    const auto clip = static_cast<float>(a.scalars[scalar_clip]);
    if (a.scalars[scalar_apply] == 0.0) return;
#pragma unroll
    for (int i = 0; i < n; ++i) {
        const float g = gradient[i] * clip;
        m[i] = without_subnormals(fused_multiply_add(a.beta1, m[i], a.other1 * g));
        v[i] = without_subnormals(fused_multiply_add(a.beta2, v[i], a.other2 * g * g));
        const float root = fused_multiply_add(square_root(v[i]), a.inverse_root_bias, a.epsilon);
        master[i] -= fused_multiply_add(decay, master[i], divide(a.step_size * m[i], root));
    }
    store(a.m + begin, m);
    store(a.v + begin, v);
    store(a.master + begin, master);
    if (a.weights != nullptr) store(static_cast<W*>(a.weights) + begin, master);
}

template <class W, int n>
void run(const AdamwUpdate& a, cudaStream_t stream) {
    const LaunchShape shape{dim3(blocks_for(a.count, threads * n)), dim3(threads), 0, stream};
    launch("adamw", shape, &update<W, n>, a);
}

}  // namespace

void adamw(const AdamwUpdate& a, cudaStream_t stream) {
    if (a.count == 0) return;
    with_storage(a.weight_dtype, [&]<class W>(W*) {
        constexpr int n = Pack<float>::size;
        const bool packs = packable<float>(a.count, {a.gradient, a.m, a.v, a.master}) &&
                           reinterpret_cast<std::uintptr_t>(a.weights) % (n * sizeof(W)) == 0;
        packs ? run<W, n>(a, stream) : run<W, 1>(a, stream);
    });
}

}  // namespace trainctl::cuda
