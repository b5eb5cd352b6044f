#include "cuda/kernels/compare.h"
#include "cuda/launch.h"

namespace trainctl::cuda {
namespace {

constexpr int threads = 256;
constexpr int per_thread = 8;  // neighbours read neighbours

// Whoever finds a difference writes the same word: no order between them matters.
__global__ void mark_difference_kernel(std::uint32_t* flag, const std::uint16_t* a, const std::uint16_t* b,
                                       std::int64_t count) {
    const std::int64_t first = std::int64_t{blockIdx.x} * threads * per_thread + threadIdx.x;
    bool differs = false;
    for (int step = 0; step < per_thread; ++step) {
        const std::int64_t i = first + step * threads;
        if (i >= count) break;
        differs = differs || a[i] != b[i];
    }
    if (differs) *flag = 1;
}

}  // namespace

void mark_difference(cudaStream_t stream, std::uint32_t* flag, const void* a, const void* b,
                     std::size_t bytes) {
    const auto count = static_cast<std::int64_t>(bytes / 2);
    if (count == 0) return;
    launch("mark_difference", {dim3(blocks_for(count, threads * per_thread)), dim3(threads), 0, stream},
           mark_difference_kernel, flag, static_cast<const std::uint16_t*>(a),
           static_cast<const std::uint16_t*>(b), count);
}

}  // namespace trainctl::cuda
