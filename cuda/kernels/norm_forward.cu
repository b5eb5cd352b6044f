#include "cuda/kernels/norm.h"
#include "cuda/kernels/norm_rows.h"
#include "cuda/launch.h"
#include "cuda/storage.h"

namespace trainctl::cuda {
namespace {

__device__ float inverse_root(float mean_square, float epsilon) {
    return divide(1.0F, square_root(mean_square + epsilon));
}

template <class T, int n>
__device__ void write_normal(T* y, const float (&x)[n], const T* gain, const T* bias, float mean,
                             float inverse) {
    float scale[n];
    float result[n];
    load<n>(gain, scale);
#pragma unroll
    for (int i = 0; i < n; ++i) result[i] = (x[i] - mean) * inverse * scale[i];
    if (bias != nullptr) {
        float shift[n];
        load<n>(bias, shift);
#pragma unroll
        for (int i = 0; i < n; ++i) result[i] += shift[i];
    }
    store(y, result);
}

template <class T, class Group>
__global__ void __launch_bounds__(Group::block_threads) forward_rows(NormForward a) {
    constexpr int size = Group::size;
    constexpr int packs = Group::packs;
    auto* partial = shared_memory<float>();
    const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * Group::groups + Group::group();
    const std::int64_t begin = row * a.width;
    const int width = static_cast<int>(a.width);
    const bool here = row < a.rows;
    const bool centred = a.settings.kind == NormKind::LayerNorm;
    const T* branch = static_cast<const T*>(a.branch);

    // All reads are under way before the first is used.
    Lanes<T, size> raw[packs] = {};
    Lanes<T, size> added[packs] = {};
#pragma unroll
    for (int p = 0; p < packs; ++p) {
        if (!here || Group::column(p) >= width) continue;
        raw[p] = load<size>(static_cast<const T*>(a.residual_in) + begin + Group::column(p));
        if (branch != nullptr) added[p] = load<size>(branch + begin + Group::column(p));
    }
    float x[packs][size];
    float sum = 0.0F;
#pragma unroll
    for (int p = 0; p < packs; ++p) {
        widen(raw[p], x[p]);
        if (branch != nullptr) {
            float more[size];
            widen(added[p], more);
#pragma unroll
            for (int i = 0; i < size; ++i) x[p][i] += more[i];
            const Lanes<T, size> rounded = narrow<T>(x[p]);
            if (here && Group::column(p) < width) {
                store(static_cast<T*>(a.residual_out) + begin + Group::column(p), rounded);
            }
            widen(rounded, x[p]);  // what later layers read
        }
#pragma unroll
        for (int i = 0; i < size; ++i) sum += x[p][i];
    }
    const float inverse_width = 1.0F / static_cast<float>(a.width);
    const float mean = centred ? Group::sum(sum, partial) * inverse_width : 0.0F;
    float squares = 0.0F;
#pragma unroll
    for (int p = 0; p < packs; ++p) {
        if (Group::column(p) >= width) continue;  // zeros, but not once the mean is taken off
#pragma unroll
        for (int i = 0; i < size; ++i) squares = fused_multiply_add(x[p][i] - mean, x[p][i] - mean, squares);
    }
    const float mean_square = Group::sum(squares, partial + Group::block_warps) * inverse_width;
    const float inverse = inverse_root(mean_square, a.settings.epsilon);
    if (!here) return;
    if (Group::thread() == 0) {
        a.statistics[2 * row] = mean;
        a.statistics[2 * row + 1] = inverse;
    }
    const T* gain = static_cast<const T*>(a.gain);
    const T* bias = static_cast<const T*>(a.bias);
#pragma unroll
    for (int p = 0; p < packs; ++p) {
        const int column = Group::column(p);
        if (column >= width) continue;
        write_normal(static_cast<T*>(a.y) + begin + column, x[p], gain + column,
                     bias != nullptr ? bias + column : nullptr, mean, inverse);
    }
}

// One block per row of any length.
template <class T, int n>
__global__ void __launch_bounds__(any_row_warps* warp_size) forward_any(NormForward a) {
    constexpr std::int64_t step = any_row_warps * warp_size * n;
    auto* partial = shared_memory<float>();
    const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * a.width;
    const std::int64_t first = static_cast<std::int64_t>(threadIdx.x) * n;
    const T* source = static_cast<const T*>(a.residual_in) + begin;
    float sum = 0.0F;
    if (a.branch != nullptr) {
        T* out = static_cast<T*>(a.residual_out) + begin;
        const T* branch = static_cast<const T*>(a.branch) + begin;
        for (std::int64_t column = first; column < a.width; column += step) {
            float x[n];
            float more[n];
            load<n>(source + column, x);
            load<n>(branch + column, more);
            for (int i = 0; i < n; ++i) x[i] += more[i];
            store(out + column, x);
        }
        source = out;  // each thread reads what it has written itself
    }
    if (a.settings.kind == NormKind::LayerNorm) {
        for (std::int64_t column = first; column < a.width; column += step) {
            float x[n];
            load<n>(source + column, x);
            for (int i = 0; i < n; ++i) sum += x[i];
        }
        sum = block_sum<any_row_warps>(sum, partial);
    }
    const float inverse_width = 1.0F / static_cast<float>(a.width);
    const float mean = sum * inverse_width;
    float squares = 0.0F;
    for (std::int64_t column = first; column < a.width; column += step) {
        float x[n];
        load<n>(source + column, x);
        for (int i = 0; i < n; ++i) squares = fused_multiply_add(x[i] - mean, x[i] - mean, squares);
    }
    const float mean_square = block_sum<any_row_warps>(squares, partial + any_row_warps) * inverse_width;
    const float inverse = inverse_root(mean_square, a.settings.epsilon);
    if (threadIdx.x == 0) {
        a.statistics[2 * blockIdx.x] = mean;
        a.statistics[2 * blockIdx.x + 1] = inverse;
    }
    const T* bias = static_cast<const T*>(a.bias);
    for (std::int64_t column = first; column < a.width; column += step) {
        float x[n];
        load<n>(source + column, x);
        write_normal(static_cast<T*>(a.y) + begin + column, x, static_cast<const T*>(a.gain) + column,
                     bias != nullptr ? bias + column : nullptr, mean, inverse);
    }
}

template <class T, int n>
void run_any(const NormForward& a, cudaStream_t stream) {
    const LaunchShape shape{dim3(blocks_for(a.rows, 1)), dim3(any_row_warps * warp_size),
                            2 * any_row_warps * sizeof(float), stream};
    launch("norm forward_any", shape, &forward_any<T, n>, a);
}

}  // namespace

void norm_forward(const NormForward& a, cudaStream_t stream) {
    if (a.rows == 0) return;
    with_storage(a.dtype, [&]<class T>(T*) {
        if (!packable<T>(a.width, {a.y, a.branch != nullptr ? a.residual_out : nullptr, a.residual_in,
                                   a.branch, a.gain, a.bias})) {
            return run_any<T, 1>(a, stream);
        }
        const bool held = with_row_group<T>(a.width, [&]<class Group>(Group) {
            const LaunchShape shape{dim3(blocks_for(a.rows, Group::groups)), dim3(Group::block_threads),
                                    2 * Group::block_warps * sizeof(float), stream};
            launch("norm forward_rows", shape, &forward_rows<T, Group>, a);
        });
        if (!held) run_any<T, Pack<T>::size>(a, stream);
    });
}

}  // namespace trainctl::cuda
