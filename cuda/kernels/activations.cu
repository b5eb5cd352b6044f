// GELU with bias, SwiGLU, and gradients of biases.
#include "cuda/kernels/column_sums.h"
#include "cuda/kernels/elementwise.h"
#include "cuda/kernels/tiles.h"
#include "cuda/storage.h"

namespace trainctl::cuda {
namespace {

// body(n as a constant) with the widest access that fits.
template <class T, class Body>
void with_access(std::int64_t width, std::initializer_list<const void*> places, const Body& body) {
    if (packable<T>(width, places)) {
        body(std::integral_constant<int, Pack<T>::size>{});
    } else {
        body(std::integral_constant<int, 1>{});
    }
}

constexpr float log2_e = 1.44269504F;
__device__ float sigmoid(float x) { return reciprocal_approximate(1.0F + exp2_approximate(-log2_e * x)); }

// gelu_tanh(x) = x / 2 (1 + tanh u) = x sigmoid(2 u), u = sqrt(2/pi) (x + 0.044715 x^3)
constexpr float two_root_two_over_pi = 1.59576912F;
constexpr float cubic = 0.044715F;
__device__ float gelu_gate(float x) {
    return sigmoid(two_root_two_over_pi * x * fused_multiply_add(cubic, x * x, 1.0F));
}

template <class T, int n>
__global__ void __launch_bounds__(tile_threads) gelu_forward(TileGrid grid, T* y, const T* x, const T* bias) {
    const TilePlace<n> at(grid);
    if (!at.inside) return;
    float shift[n];
    load<n>(bias + at.column, shift);
    Lanes<T, n> raw[rows_at_once];
#pragma unroll
    for (int i = 0; i < rows_at_once; ++i) {
        const std::int64_t row = at.row + i * tile_warps;
        if (row < at.end) raw[i] = load<n>(x + row * grid.width + at.column);
    }
#pragma unroll
    for (int i = 0; i < rows_at_once; ++i) {
        const std::int64_t row = at.row + i * tile_warps;
        if (row >= at.end) break;
        float v[n];
        widen(raw[i], v);
#pragma unroll
        for (int c = 0; c < n; ++c) {
            v[c] += shift[c];
            v[c] *= gelu_gate(v[c]);
        }
        store(y + row * grid.width + at.column, v);
    }
}

// partials[part, column..] = the warps' sums, added in order.
template <int n>
__device__ void write_column_sums(const TileGrid& grid, const TilePlace<n>& at, float* partials,
                                  const float (&sums)[n]) {
    auto* shared = shared_memory<float>();
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
    const int warp = static_cast<int>(threadIdx.x) / warp_size;
#pragma unroll
    for (int c = 0; c < n; ++c) shared[(warp * n + c) * warp_size + lane] = sums[c];
    sync_block();
    if (!at.inside) return;
    for (int c = warp; c < n; c += tile_warps) {
        float sum = 0.0F;
        for (int other = 0; other < tile_warps; ++other) sum += shared[(other * n + c) * warp_size + lane];
        partials[at.part * grid.width + at.column + c] = sum;
    }
}
template <int n>
constexpr std::size_t column_sum_shared = tile_warps* n* warp_size * sizeof(float);

template <class T, int n>
__global__ void __launch_bounds__(tile_threads)
    gelu_backward(TileGrid grid, T* dx, float* partials, const T* dy, const T* x, const T* bias) {
    const TilePlace<n> at(grid);
    float sums[n] = {};
    float shift[n] = {};
    if (at.inside) load<n>(bias + at.column, shift);
    for (std::int64_t first = at.row; at.inside && first < at.end; first += tile_rows) {
        Lanes<T, n> raw[rows_at_once];
        Lanes<T, n> raw_dy[rows_at_once];
#pragma unroll
        for (int i = 0; i < rows_at_once; ++i) {
            const std::int64_t row = first + i * tile_warps;
            if (row >= at.end) break;
            raw[i] = load<n>(x + row * grid.width + at.column);
            raw_dy[i] = load<n>(dy + row * grid.width + at.column);
        }
#pragma unroll
        for (int i = 0; i < rows_at_once; ++i) {
            const std::int64_t row = first + i * tile_warps;
            if (row >= at.end) break;
            float v[n];
            float gradient[n];
            widen(raw[i], v);
            widen(raw_dy[i], gradient);
#pragma unroll
            for (int c = 0; c < n; ++c) {
                v[c] += shift[c];
                const float s = gelu_gate(v[c]);
                // d/dx x s = s + x s (1 - s) 2 u',  2 u' = 2 sqrt(2/pi) (1 + 3 x 0.044715 x^2)
                const float slope =
                    two_root_two_over_pi * fused_multiply_add(3.0F * cubic, v[c] * v[c], 1.0F);
                gradient[c] *= s * fused_multiply_add(v[c] * slope, 1.0F - s, 1.0F);
                sums[c] += gradient[c];
            }
            store(dx + row * grid.width + at.column, gradient);
        }
    }
    write_column_sums(grid, at, partials, sums);
}

template <class T, int n>
__global__ void __launch_bounds__(tile_threads) column_sums(TileGrid grid, float* partials, const T* dy) {
    const TilePlace<n> at(grid);
    float sums[n] = {};
    for (std::int64_t first = at.row; at.inside && first < at.end; first += tile_rows) {
        Lanes<T, n> raw[rows_at_once];
#pragma unroll
        for (int i = 0; i < rows_at_once; ++i) {
            raw[i] = {};
            const std::int64_t row = first + i * tile_warps;
            if (row < at.end) raw[i] = load<n>(dy + row * grid.width + at.column);
        }
#pragma unroll
        for (int i = 0; i < rows_at_once; ++i) {
            float v[n];
            widen(raw[i], v);
#pragma unroll
            for (int c = 0; c < n; ++c) sums[c] += v[c];
        }
    }
    write_column_sums(grid, at, partials, sums);
}

template <class T, int n>
__global__ void __launch_bounds__(tile_threads) silu_forward(TileGrid grid, T* y, const T* gate_up) {
    const TilePlace<n> at(grid);
    if (!at.inside) return;
    Lanes<T, n> raw_gate[rows_at_once];
    Lanes<T, n> raw_up[rows_at_once];
#pragma unroll
    for (int i = 0; i < rows_at_once; ++i) {
        const std::int64_t row = at.row + i * tile_warps;
        if (row >= at.end) break;
        const T* from = gate_up + row * 2 * grid.width + at.column;
        raw_gate[i] = load<n>(from);
        raw_up[i] = load<n>(from + grid.width);
    }
#pragma unroll
    for (int i = 0; i < rows_at_once; ++i) {
        const std::int64_t row = at.row + i * tile_warps;
        if (row >= at.end) break;
        float gate[n];
        float up[n];
        widen(raw_gate[i], gate);
        widen(raw_up[i], up);
#pragma unroll
        for (int c = 0; c < n; ++c) up[c] *= gate[c] * sigmoid(gate[c]);
        store(y + row * grid.width + at.column, up);
    }
}

// The gradients may take the place of what they are made from: everything a thread writes it has read before.
template <class T, int n>
__global__ void __launch_bounds__(tile_threads)
    silu_backward(TileGrid grid, T* dgate_up, const T* dy, const T* gate_up) {
    const TilePlace<n> at(grid);
    if (!at.inside) return;
    Lanes<T, n> raw_gate[rows_at_once];
    Lanes<T, n> raw_up[rows_at_once];
    Lanes<T, n> raw_dy[rows_at_once];
#pragma unroll
    for (int i = 0; i < rows_at_once; ++i) {
        const std::int64_t row = at.row + i * tile_warps;
        if (row >= at.end) break;
        const T* from = gate_up + row * 2 * grid.width + at.column;
        raw_gate[i] = load<n>(from);
        raw_up[i] = load<n>(from + grid.width);
        raw_dy[i] = load<n>(dy + row * grid.width + at.column);
    }
#pragma unroll
    for (int i = 0; i < rows_at_once; ++i) {
        const std::int64_t row = at.row + i * tile_warps;
        if (row >= at.end) break;
        float gate[n];
        float up[n];
        float gradient[n];
        widen(raw_gate[i], gate);
        widen(raw_up[i], up);
        widen(raw_dy[i], gradient);
#pragma unroll
        for (int c = 0; c < n; ++c) {
            const float s = sigmoid(gate[c]);
            const float of_up = gradient[c] * gate[c] * s;
            gate[c] = gradient[c] * up[c] * (s * fused_multiply_add(gate[c], 1.0F - s, 1.0F));
            up[c] = of_up;
        }
        T* to = dgate_up + row * 2 * grid.width + at.column;
        store(to, gate);
        store(to + grid.width, up);
    }
}

// The grid of kernels that sum columns: as many ranges of rows as there are parts. Ranges of whole tiles may
// be fewer.
template <int n>
TileGrid summing_grid(std::int64_t rows, std::int64_t width) {
    const std::int64_t parts = column_parts(rows, width);
    const std::int64_t each = (rows + parts - 1) / parts;
    return tile_grid<n>(rows, width, (each + tile_rows - 1) / tile_rows * tile_rows);
}

}  // namespace

void bias_gelu_forward(const BiasGelu& a, void* y, cudaStream_t stream) {
    if (a.rows == 0) return;
    with_storage(a.dtype, [&]<class T>(T*) {
        with_access<T>(a.width, {y, a.x, a.bias}, [&]<int n>(std::integral_constant<int, n>) {
            const TileGrid grid = tile_grid<n>(a.rows, a.width);
            launch("gelu_forward", grid.shape(stream), &gelu_forward<T, n>, grid, static_cast<T*>(y),
                   static_cast<const T*>(a.x), static_cast<const T*>(a.bias));
        });
    });
}

void bias_gelu_backward(const BiasGelu& a, void* dx, float* dbias, const void* dy, float* partials, Into into,
                        cudaStream_t stream) {
    std::int64_t parts = 0;
    if (a.rows > 0) {
        with_storage(a.dtype, [&]<class T>(T*) {
            with_access<T>(a.width, {dx, dy, a.x, a.bias}, [&]<int n>(std::integral_constant<int, n>) {
                const TileGrid grid = summing_grid<n>(a.rows, a.width);
                parts = blocks_for(a.rows, grid.rows_per_block);
                launch("gelu_backward", grid.shape(stream, column_sum_shared<n>), &gelu_backward<T, n>, grid,
                       static_cast<T*>(dx), partials, static_cast<const T*>(dy), static_cast<const T*>(a.x),
                       static_cast<const T*>(a.bias));
            });
        });
    }
    add_partials(dbias, partials, parts, a.width, a.width, into, stream);
}

void bias_backward(DType dtype, float* dbias, const void* dy, float* partials, std::int64_t rows,
                   std::int64_t width, Into into, cudaStream_t stream) {
    std::int64_t parts = 0;
    if (rows > 0) {
        with_storage(dtype, [&]<class T>(T*) {
            with_access<T>(width, {dy}, [&]<int n>(std::integral_constant<int, n>) {
                const TileGrid grid = summing_grid<n>(rows, width);
                parts = blocks_for(rows, grid.rows_per_block);
                launch("column_sums", grid.shape(stream, column_sum_shared<n>), &column_sums<T, n>, grid,
                       partials, static_cast<const T*>(dy));
            });
        });
    }
    add_partials(dbias, partials, parts, width, width, into, stream);
}

void swiglu_forward(DType dtype, void* y, const void* gate_up, std::int64_t rows, std::int64_t width,
                    cudaStream_t stream) {
    if (rows == 0) return;
    with_storage(dtype, [&]<class T>(T*) {
        with_access<T>(width, {y, gate_up}, [&]<int n>(std::integral_constant<int, n>) {
            const TileGrid grid = tile_grid<n>(rows, width);
            launch("silu_forward", grid.shape(stream), &silu_forward<T, n>, grid, static_cast<T*>(y),
                   static_cast<const T*>(gate_up));
        });
    });
}

void swiglu_backward(DType dtype, void* dgate_up, const void* dy, const void* gate_up, std::int64_t rows,
                     std::int64_t width, cudaStream_t stream) {
    if (rows == 0) return;
    with_storage(dtype, [&]<class T>(T*) {
        with_access<T>(width, {dgate_up, dy, gate_up}, [&]<int n>(std::integral_constant<int, n>) {
            const TileGrid grid = tile_grid<n>(rows, width);
            launch("silu_backward", grid.shape(stream), &silu_backward<T, n>, grid, static_cast<T*>(dgate_up),
                   static_cast<const T*>(dy), static_cast<const T*>(gate_up));
        });
    });
}

}  // namespace trainctl::cuda
