// n = (x - mean) inverse, g = dy gain: dx = inverse (g - mean(g) - n mean(g n)); RMS: without mean(g). dgain
// sums dy n over the rows, dbias sums dy.
#include <algorithm>

#include "cuda/kernels/column_sums.h"
#include "cuda/kernels/norm.h"
#include "cuda/kernels/norm_rows.h"
#include "cuda/launch.h"
#include "cuda/storage.h"

namespace trainctl::cuda {
namespace {

// Two blocks for each multiprocessor of the largest devices (132): enough to hide memory, few enough that the
// partial sums are small beside the tensors.
constexpr std::int64_t most_partials = 264;

enum class Sums { Gain, GainAndBias };

// This block's part of one gradient: the groups' sums, added in order by way of shared memory.
template <class T, class Group>
__device__ void write_sums(float* partial, const float (&sums)[Group::packs][Group::size], std::int64_t width,
                           float* shared) {
    sync_block();  // what the memory was used for before is over
#pragma unroll
    for (int p = 0; p < Group::packs; ++p) {
#pragma unroll
        for (int i = 0; i < Group::size; ++i)
            shared[Group::group() * Group::most + Group::column(p) + i] = sums[p][i];
    }
    sync_block();
    for (std::int64_t column = threadIdx.x; column < width; column += Group::block_threads) {
        float sum = 0.0F;
        for (int group = 0; group < Group::groups; ++group) sum += shared[group * Group::most + column];
        partial[column] = sum;
    }
}

// A group walks over rows, so that its threads keep the sums of their columns in registers.
template <class T, class Group, Sums wanted>
__global__ void __launch_bounds__(Group::block_threads, 512 / Group::block_threads)
    backward_rows(NormBackward a) {
    constexpr int size = Group::size;
    constexpr int packs = Group::packs;
    using Row = Lanes<T, size>[packs];
    auto* shared = shared_memory<float>();
    const bool centred = a.kind == NormKind::LayerNorm;
    const int width = static_cast<int>(a.width);
    const T* through = static_cast<const T*>(a.dresidual_out);
    const float inverse_width = 1.0F / static_cast<float>(a.width);

    const auto read = [&](Row& to, const T* from, std::int64_t row) {
#pragma unroll
        for (int p = 0; p < packs; ++p) {
            to[p] = {};
            if (row < a.rows && Group::column(p) < width)
                to[p] = load<size>(from + row * a.width + Group::column(p));
        }
    };
    const auto read_statistics = [&](std::int64_t row) {
        Lanes<float, 2> both = {};
        if (row < a.rows) both = load<2>(a.statistics + 2 * row);
        return both;
    };
    Row gain;
#pragma unroll
    for (int p = 0; p < packs; ++p) {
        gain[p] = {};
        if (Group::column(p) < width) gain[p] = load<size>(static_cast<const T*>(a.gain) + Group::column(p));
    }
    float gain_sums[packs][size] = {};
    float bias_sums[packs][size] = {};

    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * Group::groups;
    std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * Group::groups + Group::group();
    Row x;
    Row dy;
    read(x, static_cast<const T*>(a.residual), row);
    read(dy, static_cast<const T*>(a.dy), row);
    Lanes<float, 2> statistics = read_statistics(row);
    // All groups of a block turn equally often: the barriers in sums belong to all.
    int turn = 0;
    for (std::int64_t first = row - Group::group(); first < a.rows; first += step, row += step, ++turn) {
        const bool here = row < a.rows;
        Row past;
        if (through != nullptr) read(past, through, row);
        const float mean = centred ? statistics.lane[0] : 0.0F;
        const float inverse = statistics.lane[1];
        // Pack p of (x - mean) inverse, of dy and of dy gain. Made twice from the packs as read: half the
        // registers.
        const auto values = [&](int p, float(&normal)[size], float(&dy_p)[size], float(&g)[size]) {
            widen(x[p], normal);
            widen(dy[p], dy_p);
            widen(gain[p], g);
#pragma unroll
            for (int i = 0; i < size; ++i) {
                normal[i] = (normal[i] - mean) * inverse;
                g[i] *= dy_p[i];  // 0 beyond the row's end
            }
        };
        float g_sum = 0.0F;
        float gn_sum = 0.0F;
#pragma unroll
        for (int p = 0; p < packs; ++p) {
            float normal[size];
            float dy_p[size];
            float g[size];
            values(p, normal, dy_p, g);
#pragma unroll
            for (int i = 0; i < size; ++i) {
                g_sum += g[i];
                gn_sum = fused_multiply_add(g[i], normal[i], gn_sum);
                gain_sums[p][i] = fused_multiply_add(dy_p[i], normal[i], gain_sums[p][i]);
                if constexpr (wanted == Sums::GainAndBias) bias_sums[p][i] += dy_p[i];
            }
        }
        // The next row is on its way while this one is added up, where there are registers for both.
        Row next_x;
        Row next_dy;
        const auto read_next = [&] {
            read(next_x, static_cast<const T*>(a.residual), row + step);
            read(next_dy, static_cast<const T*>(a.dy), row + step);
            statistics = read_statistics(row + step);
        };
        if constexpr (Group::threads < 512) read_next();
        Group::sum_both(g_sum, gn_sum, shared + (turn % 2) * 2 * Group::block_warps);
        const float mean_g = centred ? g_sum * inverse_width : 0.0F;
        const float mean_gn = gn_sum * inverse_width;
#pragma unroll
        for (int p = 0; p < packs; ++p) {
            float normal[size];
            float dy_p[size];
            float dx[size];
            values(p, normal, dy_p, dx);
#pragma unroll
            for (int i = 0; i < size; ++i) {
                dx[i] = fused_multiply_add(-normal[i], mean_gn, dx[i] - mean_g) * inverse;
            }
            if (through != nullptr) {
                float more[size];
                widen(past[p], more);
#pragma unroll
                for (int i = 0; i < size; ++i) dx[i] += more[i];
            }
            if (here && Group::column(p) < width) {
                store(static_cast<T*>(a.dresidual_in) + row * a.width + Group::column(p), dx);
            }
        }
        if constexpr (Group::threads >= 512) read_next();
#pragma unroll
        for (int p = 0; p < packs; ++p) {
            x[p] = next_x[p];
            dy[p] = next_dy[p];
        }
    }
    float* partial = a.partials + static_cast<std::int64_t>(blockIdx.x) * 2 * a.width;
    write_sums<T, Group>(partial, gain_sums, a.width, shared);
    if constexpr (wanted == Sums::GainAndBias)
        write_sums<T, Group>(partial + a.width, bias_sums, a.width, shared);
}

// Any width, dx: one block per row.
template <class T, int n>
__global__ void __launch_bounds__(any_row_warps* warp_size) backward_any(NormBackward a) {
    constexpr std::int64_t step = any_row_warps * warp_size * n;
    auto* partial = shared_memory<float>();
    const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * a.width;
    const bool centred = a.kind == NormKind::LayerNorm;
    const float mean = centred ? a.statistics[2 * blockIdx.x] : 0.0F;
    const float inverse = a.statistics[2 * blockIdx.x + 1];
    // body(column, n values of (x - mean) inverse, n of dy gain)
    const auto each = [&](const auto& body) {
        for (std::int64_t column = static_cast<std::int64_t>(threadIdx.x) * n; column < a.width;
             column += step) {
            float normal[n];
            float g[n];
            float gain[n];
            load<n>(static_cast<const T*>(a.residual) + begin + column, normal);
            load<n>(static_cast<const T*>(a.dy) + begin + column, g);
            load<n>(static_cast<const T*>(a.gain) + column, gain);
            for (int i = 0; i < n; ++i) {
                normal[i] = (normal[i] - mean) * inverse;
                g[i] *= gain[i];
            }
            body(column, normal, g);
        }
    };
    float g_sum = 0.0F;
    float gn_sum = 0.0F;
    each([&](std::int64_t, const float(&normal)[n], const float(&g)[n]) {
        for (int i = 0; i < n; ++i) {
            g_sum += g[i];
            gn_sum = fused_multiply_add(g[i], normal[i], gn_sum);
        }
    });
    const float inverse_width = 1.0F / static_cast<float>(a.width);
    g_sum = block_sum<any_row_warps>(g_sum, partial);
    gn_sum = block_sum<any_row_warps>(gn_sum, partial + any_row_warps);
    const float mean_g = centred ? g_sum * inverse_width : 0.0F;
    const float mean_gn = gn_sum * inverse_width;
    each([&](std::int64_t column, const float(&normal)[n], const float(&g)[n]) {
        float dx[n];
        for (int i = 0; i < n; ++i) dx[i] = fused_multiply_add(-normal[i], mean_gn, g[i] - mean_g) * inverse;
        if (a.dresidual_out != nullptr) {
            float more[n];
            load<n>(static_cast<const T*>(a.dresidual_out) + begin + column, more);
            for (int i = 0; i < n; ++i) dx[i] += more[i];
        }
        store(static_cast<T*>(a.dresidual_in) + begin + column, dx);
    });
}

// Any width, sums over rows: a block has 32 columns and every gridDim.x-th run of 8 rows, a row to each warp.
template <class T>
__global__ void __launch_bounds__(any_row_warps* warp_size) sums_any(NormBackward a) {
    auto* shared = shared_memory<float>();
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
    const int warp = static_cast<int>(threadIdx.x) / warp_size;
    const std::int64_t column = static_cast<std::int64_t>(blockIdx.y) * warp_size + lane;
    const bool here = column < a.width;
    float gain_sum = 0.0F;
    float bias_sum = 0.0F;
    for (std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * any_row_warps + warp;
         here && row < a.rows; row += static_cast<std::int64_t>(gridDim.x) * any_row_warps) {
        const float mean = a.kind == NormKind::LayerNorm ? a.statistics[2 * row] : 0.0F;
        const float normal = (widen(static_cast<const T*>(a.residual)[row * a.width + column]) - mean) *
                             a.statistics[2 * row + 1];
        const float dy = widen(static_cast<const T*>(a.dy)[row * a.width + column]);
        gain_sum = fused_multiply_add(dy, normal, gain_sum);
        bias_sum += dy;
    }
    float* bias_shared = shared + any_row_warps * warp_size;
    shared[threadIdx.x] = gain_sum;
    bias_shared[threadIdx.x] = bias_sum;
    sync_block();
    if (warp > 0 || !here) return;
    for (int other = 1; other < any_row_warps; ++other) {
        gain_sum += shared[other * warp_size + lane];
        bias_sum += bias_shared[other * warp_size + lane];
    }
    float* partial = a.partials + static_cast<std::int64_t>(blockIdx.x) * 2 * a.width;
    partial[column] = gain_sum;
    partial[a.width + column] = bias_sum;
}

// Each returns the number of partial sums.
template <class T, class Group>
std::int64_t run_rows(const NormBackward& a, cudaStream_t stream) {
    const std::int64_t blocks = std::min<std::int64_t>(blocks_for(a.rows, Group::groups), most_partials);
    const std::size_t floats = std::max<std::size_t>(Group::groups * Group::most, 4 * Group::block_warps);
    const LaunchShape shape{dim3(static_cast<unsigned>(blocks)), dim3(Group::block_threads),
                            floats * sizeof(float), stream};
    if (a.dbias != nullptr) {
        launch("norm backward_rows", shape, &backward_rows<T, Group, Sums::GainAndBias>, a);
    } else {
        launch("norm backward_rows", shape, &backward_rows<T, Group, Sums::Gain>, a);
    }
    return blocks;
}
template <class T, int n>
std::int64_t run_any(const NormBackward& a, cudaStream_t stream) {
    constexpr unsigned threads = any_row_warps * warp_size;
    const std::int64_t parts = std::min<std::int64_t>(blocks_for(a.rows, 8L * any_row_warps), most_partials);
    launch("norm sums_any",
           {dim3(static_cast<unsigned>(parts), blocks_for(a.width, warp_size)), dim3(threads),
            2 * threads * sizeof(float), stream},
           &sums_any<T>, a);
    launch("norm backward_any",
           {dim3(blocks_for(a.rows, 1)), dim3(threads), 2 * any_row_warps * sizeof(float), stream},
           &backward_any<T, n>, a);
    return parts;
}

}  // namespace

std::int64_t norm_partials(std::int64_t rows) { return std::min(rows, most_partials); }

void norm_backward(const NormBackward& a, cudaStream_t stream) {
    std::int64_t parts = 0;
    if (a.rows > 0) {
        with_storage(a.dtype, [&]<class T>(T*) {
            if (!packable<T>(a.width, {a.dresidual_in, a.dy, a.dresidual_out, a.residual, a.gain})) {
                parts = run_any<T, 1>(a, stream);
                return;
            }
            const bool held = with_row_group<T>(
                a.width, [&]<class Group>(Group) { parts = run_rows<T, Group>(a, stream); });
            if (!held) parts = run_any<T, Pack<T>::size>(a, stream);
        });
    }
    add_partials(a.dgain, a.partials, parts, 2 * a.width, a.width, a.into, stream);
    if (a.dbias != nullptr) {
        add_partials(a.dbias, a.partials + a.width, parts, 2 * a.width, a.width, a.into, stream);
    }
}

}  // namespace trainctl::cuda
