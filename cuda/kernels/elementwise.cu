// Additions, casts and dropout.
#include "cuda/kernels/elementwise.h"
#include "cuda/kernels/philox.h"
#include "cuda/kernels/tiles.h"
#include "cuda/storage.h"

namespace trainctl::cuda {
namespace {

// Flat ranges: a thread has four runs of n elements, a block's width apart.
constexpr int flat_threads = 256;
constexpr int flat_runs = 4;
template <int n>
LaunchShape flat_shape(std::int64_t count, cudaStream_t stream) {
    return {dim3(blocks_for(count, flat_threads * flat_runs * n)), dim3(flat_threads), 0, stream};
}
template <int n>
__device__ std::int64_t flat_place(int run) {
    return ((static_cast<std::int64_t>(blockIdx.x) * flat_runs + run) * flat_threads + threadIdx.x) * n;
}

template <class T, int n>
__global__ void __launch_bounds__(flat_threads) add_all(T* y, const T* a, const T* b, std::int64_t count) {
    Lanes<T, n> left[flat_runs];
    Lanes<T, n> right[flat_runs];
#pragma unroll
    for (int run = 0; run < flat_runs; ++run) {
        if (flat_place<n>(run) >= count) break;
        left[run] = load<n>(a + flat_place<n>(run));
        right[run] = load<n>(b + flat_place<n>(run));
    }
#pragma unroll
    for (int run = 0; run < flat_runs; ++run) {
        if (flat_place<n>(run) >= count) break;
        float sum[n];
        float more[n];
        widen(left[run], sum);
        widen(right[run], more);
#pragma unroll
        for (int i = 0; i < n; ++i) sum[i] += more[i];
        store(y + flat_place<n>(run), sum);
    }
}

template <class To, class From, int n>
__global__ void __launch_bounds__(flat_threads) cast_all(To* to, const From* from, std::int64_t count) {
    Lanes<From, n> raw[flat_runs];
#pragma unroll
    for (int run = 0; run < flat_runs; ++run) {
        if (flat_place<n>(run) < count) raw[run] = load<n>(from + flat_place<n>(run));
    }
#pragma unroll
    for (int run = 0; run < flat_runs; ++run) {
        if (flat_place<n>(run) >= count) break;
        float x[n];
        widen(raw[run], x);
        store(to + flat_place<n>(run), x);
    }
}

// Runs of n elements begin at multiples of 4 of a sample's numbers, or n is 1.
template <class T, int n>
__global__ void __launch_bounds__(tile_threads)
    dropout_all(TileGrid grid, T* y, const T* x, std::int64_t rows_per_sample, DropoutMask mask) {
    const TilePlace<n> at(grid);
    if (!at.inside) return;
    std::int64_t sample = (mask.first_row + at.row) / rows_per_sample;
    std::int64_t place = (mask.first_row + at.row) % rows_per_sample;
#pragma unroll
    for (int i = 0; i < rows_at_once; ++i) {
        const std::int64_t row = at.row + i * tile_warps;
        if (row >= at.end) break;
        float v[n];
        float factor[n];
        load<n>(x + row * grid.width + at.column, v);
        mask.factors(static_cast<std::uint64_t>(sample), place * grid.width + at.column, factor);
#pragma unroll
        for (int c = 0; c < n; ++c) v[c] *= factor[c];
        store(y + row * grid.width + at.column, v);
        // The warp's next row; a division costs more than this, unless samples are very short.
        for (place += tile_warps; place >= rows_per_sample; place -= rows_per_sample) ++sample;
    }
}

template <class To, class From>
void run_cast(void* to, const void* from, std::int64_t count, cudaStream_t stream) {
    constexpr int n = Pack<From>::size < Pack<To>::size ? Pack<From>::size : Pack<To>::size;
    auto* out = static_cast<To*>(to);
    const auto* in = static_cast<const From*>(from);
    if (count % n == 0 && aligned_16(to) && aligned_16(from)) {
        launch("cast", flat_shape<n>(count, stream), &cast_all<To, From, n>, out, in, count);
    } else {
        launch("cast", flat_shape<1>(count, stream), &cast_all<To, From, 1>, out, in, count);
    }
}

}  // namespace

void add(DType dtype, void* y, const void* a, const void* b, std::int64_t count, cudaStream_t stream) {
    if (count == 0) return;
    with_storage(dtype, [&]<class T>(T*) {
        constexpr int n = Pack<T>::size;
        auto* sum = static_cast<T*>(y);
        const auto* left = static_cast<const T*>(a);
        const auto* right = static_cast<const T*>(b);
        if (packable<T>(count, {y, a, b})) {
            launch("add", flat_shape<n>(count, stream), &add_all<T, n>, sum, left, right, count);
        } else {
            launch("add", flat_shape<1>(count, stream), &add_all<T, 1>, sum, left, right, count);
        }
    });
}

void cast(DType to_dtype, void* to, DType from_dtype, const void* from, std::int64_t count,
          cudaStream_t stream) {
    if (count == 0) return;
    with_storage(to_dtype, [&]<class To>(To*) {
        with_storage(from_dtype, [&]<class From>(From*) { run_cast<To, From>(to, from, count, stream); });
    });
}

void dropout(DType dtype, void* y, const void* x, std::int64_t rows, std::int64_t width,
             std::int64_t rows_per_sample, const Dropout& site, cudaStream_t stream) {
    if (rows == 0) return;
    const DropoutMask mask(site);
    with_storage(dtype, [&]<class T>(T*) {
        constexpr int n = Pack<T>::size;
        auto* out = static_cast<T*>(y);
        const auto* in = static_cast<const T*>(x);
        if (packable<T>(width, {y, x})) {
            const TileGrid grid = tile_grid<n>(rows, width);
            launch("dropout", grid.shape(stream), &dropout_all<T, n>, grid, out, in, rows_per_sample, mask);
        } else {
            const TileGrid grid = tile_grid<1>(rows, width);
            launch("dropout", grid.shape(stream), &dropout_all<T, 1>, grid, out, in, rows_per_sample, mask);
        }
    });
}

}  // namespace trainctl::cuda
