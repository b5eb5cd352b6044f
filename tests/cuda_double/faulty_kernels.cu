#include "cuda/intrinsics.h"
#include "cuda/launch.h"
#include "cuda/reduce.h"
#include "cuda_double/faulty_kernels.h"

namespace trainctl::cuda_double {
namespace {

constexpr int width = 64;

__global__ void reverse(float* out, const float* in, Planted fault) {
    float* shared = cuda::shared_memory<float>();
    const int thread = static_cast<int>(threadIdx.x);
    const int place = static_cast<int>(blockIdx.x) * width + thread;
    if (fault == Planted::FetchNotWaitedFor) {
        if (thread % 4 == 0) cuda::fetch_16(shared + thread, in + place, cuda::Fetch::Data);
        cuda::commit_group();
    } else if (fault != Planted::UnwrittenShared || thread != 5) {
        shared[fault == Planted::SharedOutside ? thread + 1 : thread] = in[place];
    }
    if (fault == Planted::BarrierNotForAll && thread == 3) return;
    if (fault != Planted::MissingBarrier) cuda::sync_block();
    float value = shared[width - 1 - thread];
    if (fault == Planted::ShuffleNotForAll && thread % 2 == 0) cuda::sync_block();
    if (fault == Planted::DifferentFunctions && thread % 32 == 7) {
        cuda::sync_warp();
    } else {
        value += 0.0F * cuda::warp_sum(1.0F);
    }
    if (fault == Planted::FarOutside && thread == 9) value += in[1 << 20];
    out[fault == Planted::OffByOne ? place + 1 : place] = value;
}

}  // namespace

void reverse_blocks(float* out, const float* in, int blocks, Planted fault, cudaStream_t stream) {
    cuda::launch("reverse", {dim3(static_cast<unsigned>(blocks)), dim3(width), width * sizeof(float), stream},
                 reverse, out, in, fault);
}

}  // namespace trainctl::cuda_double
