#include "cuda/intrinsics.h"
#include "cuda/kernels/accumulate.h"
#include "cuda/launch.h"

namespace trainctl::cuda {
namespace {

constexpr int threads = 256;
constexpr int per_thread = 4;  // loads under way; neighbours read neighbours

template <class T>
__global__ void accumulate_kernel(float* to, const T* from, std::int64_t count, Into into) {
    const std::int64_t first = std::int64_t{blockIdx.x} * threads * per_thread + threadIdx.x;
    for (int step = 0; step < per_thread; ++step) {
        const std::int64_t i = first + step * threads;
        if (i >= count) return;
        const float value = widen(from[i]);
        to[i] = into == Into::Accumulate ? to[i] + value : value;
    }
}

template <class T>
void start(cudaStream_t stream, float* to, const void* from, std::int64_t count, Into into) {
    launch("accumulate", {dim3(blocks_for(count, threads * per_thread)), dim3(threads), 0, stream},
           accumulate_kernel<T>, to, static_cast<const T*>(from), count, into);
}

}  // namespace

void accumulate(cudaStream_t stream, float* to, const void* from, DType dtype, std::int64_t count,
                Into into) {
    if (count == 0) return;
    switch (dtype) {
        case DType::F32:
            return start<float>(stream, to, from, count, into);
        case DType::BF16:
            return start<BFloat16>(stream, to, from, count, into);
        case DType::F16:
            return start<Float16>(stream, to, from, count, into);
        default:
            fail(Exit::Internal, "accumulate: expected f32, bf16 or f16");
    }
}

}  // namespace trainctl::cuda
