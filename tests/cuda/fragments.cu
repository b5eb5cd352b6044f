#include "cuda/fragments.h"
#include "cuda/intrinsics.h"
#include "cuda/launch.h"

namespace trainctl::cuda_test {
namespace {

using namespace cuda;

template <class T>
__device__ std::uint32_t pair_at(const T* from) {
    return static_cast<std::uint32_t>(from[0].bits) | static_cast<std::uint32_t>(from[1].bits) << 16U;
}

template <class T>
__global__ void product_kernel(float* d, const T* a, const T* b) {
    const int g = static_cast<int>(threadIdx.x) / 4;
    const int t = static_cast<int>(threadIdx.x) % 4;
    const T* row = a + g * 16 + 2 * t;
    const T* column = b + g * 16 + 2 * t;
    const std::uint32_t left[4] = {pair_at(row), pair_at(row + 8 * 16), pair_at(row + 8),
                                   pair_at(row + 8 * 16 + 8)};
    const std::uint32_t right[2] = {pair_at(column), pair_at(column + 8)};
    float* low = d + g * 8 + 2 * t;
    float* high = low + 8 * 8;
    float sums[4] = {low[0], low[1], high[0], high[1]};
    multiply_accumulate<T>(sums, left, right);
    low[0] = sums[0];
    low[1] = sums[1];
    high[0] = sums[2];
    high[1] = sums[3];
}

__global__ void matrix_kernel(std::uint32_t* out, const std::uint16_t* matrices, MatrixRead read) {
    auto* shared = shared_memory<std::uint16_t>();
    const int lane = static_cast<int>(threadIdx.x);
    for (int i = 0; i < 8; ++i) shared[lane * 8 + i] = matrices[lane * 8 + i];
    sync_block();
    std::uint32_t registers[4];
    if (read == MatrixRead::Straight) {
        load_matrices(registers, shared + lane * 8);
    } else {
        load_matrices_transposed(registers, shared + lane * 8);
    }
    for (int i = 0; i < 4; ++i) out[lane * 4 + i] = registers[i];
}

template <int bytes>
__device__ void fetch(std::byte* to, const std::byte* from, Fetch what) {
    if constexpr (bytes == 16) {
        fetch_16(to, from, what);
    } else if constexpr (bytes == 8) {
        fetch_8(to, from, what);
    } else {
        fetch_4(to, from, what);
    }
}

template <int bytes, int group>
__device__ void read_group(std::byte* out, const std::byte* shared) {
    wait_groups<fetch_groups - 1 - group>();
    sync_block();
    // A neighbour's bytes, which the barrier lets this thread see.
    const int lane = (static_cast<int>(threadIdx.x) + 1) % fetch_lanes;
    const int first = (group * fetch_lanes + lane) * bytes;
    for (int i = 0; i < bytes; ++i) out[first + i] = shared[first + i];
}

template <int bytes>
__global__ void fetch_kernel(std::byte* out, const std::byte* in) {
    auto* shared = shared_memory<std::byte>();
    const int lane = static_cast<int>(threadIdx.x);
    for (int group = 0; group < fetch_groups; ++group) {
        const int first = (group * fetch_lanes + lane) * bytes;
        fetch<bytes>(shared + first, in + first, (group + lane) % 5 == 0 ? Fetch::Zeros : Fetch::Data);
        commit_group();
    }
    read_group<bytes, 0>(out, shared);
    read_group<bytes, 1>(out, shared);
    read_group<bytes, 2>(out, shared);
}

template <int bytes>
void start_fetch(std::byte* out, const std::byte* in, cudaStream_t stream) {
    launch("fetch",
           {dim3(1), dim3(fetch_lanes), static_cast<std::size_t>(fetch_groups * fetch_lanes * bytes), stream},
           fetch_kernel<bytes>, out, in);
}

}  // namespace

template <class T>
void one_product(float* d, const T* a, const T* b, cudaStream_t stream) {
    launch("product", {dim3(1), dim3(32), 0, stream}, product_kernel<T>, d, a, b);
}
template void one_product(float* d, const BFloat16* a, const BFloat16* b, cudaStream_t stream);
template void one_product(float* d, const Float16* a, const Float16* b, cudaStream_t stream);

void one_matrix_read(std::uint32_t* out, const std::uint16_t* matrices, MatrixRead read,
                     cudaStream_t stream) {
    launch("matrix read", {dim3(1), dim3(32), 4 * 8 * 8 * sizeof(std::uint16_t), stream}, matrix_kernel, out,
           matrices, read);
}

void fetched_in_groups(std::byte* out, const std::byte* in, int bytes, cudaStream_t stream) {
    if (bytes == 16) start_fetch<16>(out, in, stream);
    if (bytes == 8) start_fetch<8>(out, in, stream);
    if (bytes == 4) start_fetch<4>(out, in, stream);
}

}  // namespace trainctl::cuda_test
