// Backward. Atomics on integers group the rows of dx by token in an order that is not always the same: which
// place a token's group gets and how its rows lie in it. Neither reaches the result: every row then counts
// how many rows of its group come before it, so that each group is in row order before it is added up.
#include <algorithm>
#include <type_traits>

#include "cuda/kernels/embedding.h"
#include "cuda/lanes.h"
#include "cuda/launch.h"
#include "cuda/storage.h"

namespace trainctl::cuda {
namespace {

constexpr int warps = 8;
constexpr int threads = warps * warp_size;
constexpr int at_once = 4;  // accesses that a lane has under way

__device__ std::int64_t warp_number() {
    return static_cast<std::int64_t>(blockIdx.x) * warps + threadIdx.x / warp_size;
}
__device__ std::int64_t thread_number() {
    return static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
}
__device__ int lane_number() { return static_cast<int>(threadIdx.x) % warp_size; }

// One warp per row.
template <class T, int n>
__global__ void __launch_bounds__(threads) gather(EmbeddingForward a) {
    constexpr std::int64_t step = warp_size * n;
    const std::int64_t row = warp_number();
    if (row >= a.rows) return;
    const std::int64_t token = a.tokens[row] - a.first_row;
    const bool here = token >= 0 && token < a.table_rows;
    const T* from = static_cast<const T*>(a.table) + (here ? token * a.width : 0);
    const T* position =
        a.positions != nullptr ? static_cast<const T*>(a.positions) + row % a.length * a.width : nullptr;
    T* to = static_cast<T*>(a.x) + row * a.width;
    for (std::int64_t first = lane_number() * n; first < a.width; first += at_once * step) {
        Lanes<T, n> raw[at_once];
        Lanes<T, n> added[at_once];
#pragma unroll
        for (int i = 0; i < at_once; ++i) {
            const std::int64_t column = first + i * step;
            raw[i] = {};
            added[i] = {};
            if (column >= a.width) continue;
            if (here) raw[i] = load<n>(from + column);
            if (position != nullptr) added[i] = load<n>(position + column);
        }
#pragma unroll
        for (int i = 0; i < at_once; ++i) {
            const std::int64_t column = first + i * step;
            if (column >= a.width) break;
            float value[n];
            widen(raw[i], value);
            if (position != nullptr) {
                float more[n];
                widen(added[i], more);
#pragma unroll
                for (int c = 0; c < n; ++c) value[c] += more[c];
            }
            store(to + column, value);
        }
    }
}

// ---- backward: rows by token ----

// Parts of the scratch memory.
struct Groups {
    std::int32_t* totals;   // [2]: tokens present, rows placed
    std::int32_t* counts;   // [table_rows]: rows of each token
    std::int32_t* ends;     // [table_rows]: where each token's group ends, once it is filled
    std::int32_t* present;  // [rows]: tokens that have any
    std::int32_t* placed;   // [rows]: rows of dx, group by group
    std::int32_t* ordered;  // [rows]: the same, in row order within each group

    Groups(std::int32_t* scratch, std::int64_t rows, std::int64_t table_rows)
        : totals(scratch),
          counts(totals + 2),
          ends(counts + table_rows),
          present(ends + table_rows),
          placed(present + rows),
          ordered(placed + rows) {}
};

// Table row of a row of dx, or -1.
__device__ std::int64_t table_row(const EmbeddingBackward& a, std::int64_t row) {
    const std::int64_t token = a.tokens[row] - a.first_row;
    return token >= 0 && token < a.table_rows ? token : -1;
}

__global__ void __launch_bounds__(threads) count_rows(EmbeddingBackward a, Groups groups) {
    const std::int64_t row = thread_number();
    if (row >= a.rows) return;
    const std::int64_t token = table_row(a, row);
    if (token >= 0) atomic_add(groups.counts + token, 1);
}

// One thread per table row; a warp reserves places for all of its rows together.
__global__ void __launch_bounds__(threads) reserve(EmbeddingBackward a, Groups groups) {
    const std::int64_t token = thread_number();
    const int lane = lane_number();
    const std::int32_t count = token < a.table_rows ? groups.counts[token] : 0;
    // Sums over this lane and those below it.
    std::int32_t rows = count;
    std::int32_t tokens = count > 0 ? 1 : 0;
    for (int delta = 1; delta < warp_size; delta *= 2) {
        const std::int32_t more_rows = shuffle(rows, lane - delta);
        const std::int32_t more_tokens = shuffle(tokens, lane - delta);
        if (lane < delta) continue;
        rows += more_rows;
        tokens += more_tokens;
    }
    std::int32_t first_row = 0;
    std::int32_t first_token = 0;
    if (lane == warp_size - 1 && rows > 0) {
        first_token = atomic_add(groups.totals, tokens);
        first_row = atomic_add(groups.totals + 1, rows);
    }
    first_token = shuffle(first_token, warp_size - 1);
    first_row = shuffle(first_row, warp_size - 1);
    if (count == 0) return;
    groups.present[first_token + tokens - 1] = static_cast<std::int32_t>(token);
    groups.ends[token] = first_row + rows - count;  // the beginning, until the group is filled
}

__global__ void __launch_bounds__(threads) place(EmbeddingBackward a, Groups groups) {
    const std::int64_t row = thread_number();
    if (row >= a.rows) return;
    const std::int64_t token = table_row(a, row);
    if (token >= 0) groups.placed[atomic_add(groups.ends + token, 1)] = static_cast<std::int32_t>(row);
}

// One thread per placed row. Costs the square of a group's length in all, which stays small beside the sums
// for any text: reads are shared by a warp and groups of thousands are few.
__global__ void __launch_bounds__(threads) put_in_order(EmbeddingBackward a, Groups groups) {
    const std::int64_t at = thread_number();
    if (at >= groups.totals[1]) return;
    const std::int32_t row = groups.placed[at];
    const std::int64_t token = table_row(a, row);
    const std::int32_t end = groups.ends[token];
    const std::int32_t begin = end - groups.counts[token];
    std::int32_t before = 0;
#pragma unroll 4
    for (std::int32_t other = begin; other < end; ++other) before += groups.placed[other] < row ? 1 : 0;
    groups.ordered[begin + before] = row;
}

// ---- backward: sums ----

// sum += rows of dx in order, seen through 32 lanes of n columns; row_at(i) for i in [0, count), the same in
// all lanes.
template <int n, class T, class RowAt>
__device__ void add_rows(float (&sum)[n], const T* dx, std::int64_t width, std::int64_t count,
                         const RowAt& row_at) {
    constexpr int batch = 8;
    for (std::int64_t first = 0; first < count; first += batch) {
        Lanes<T, n> raw[batch];
#pragma unroll
        for (int i = 0; i < batch; ++i) {
            raw[i] = {};
            if (first + i < count) raw[i] = load<n>(dx + row_at(first + i) * width);
        }
#pragma unroll
        for (int i = 0; i < batch; ++i) {
            float more[n];
            widen(raw[i], more);
            if (first + i >= count) break;
#pragma unroll
            for (int c = 0; c < n; ++c) sum[c] += more[c];
        }
    }
}
// F32, n of them: in accesses of at most 16 bytes.
template <int n>
__device__ void load_sums(const float* from, float (&sum)[n]) {
    constexpr int run = n < 4 ? n : 4;
#pragma unroll
    for (int first = 0; first < n; first += run) {
        const Lanes<float, run> raw = load<run>(from + first);
#pragma unroll
        for (int c = 0; c < run; ++c) sum[first + c] = raw.lane[c];
    }
}
template <int n>
__device__ void store_sums(float* to, const float (&sum)[n]) {
    constexpr int run = n < 4 ? n : 4;
#pragma unroll
    for (int first = 0; first < n; first += run) {
        Lanes<float, run> raw;
#pragma unroll
        for (int c = 0; c < run; ++c) raw.lane[c] = sum[first + c];
        store(to + first, raw);
    }
}

// One warp per token that is present and run of 32 n columns, so that a frequent token is many warps' work.
template <class T, int n>
__global__ void __launch_bounds__(threads)
    add_to_table(EmbeddingBackward a, Groups groups, std::int64_t runs) {
    const std::int64_t which = warp_number() / runs;
    const std::int64_t column = (warp_number() % runs * warp_size + lane_number()) * n;
    if (which >= groups.totals[0] || column >= a.width) return;
    const std::int64_t token = groups.present[which];
    const std::int64_t count = groups.counts[token];
    const std::int32_t* rows = groups.ordered + (groups.ends[token] - count);
    float* to = a.dtable + token * a.width + column;
    float sum[n] = {};
    if (a.table_into == Into::Accumulate) load_sums(to, sum);
    add_rows<n>(sum, static_cast<const T*>(a.dx) + column, a.width, count,
                [&](std::int64_t i) { return static_cast<std::int64_t>(rows[i]); });
    store_sums(to, sum);
}

template <class T, int n>
__global__ void __launch_bounds__(threads) add_to_positions(EmbeddingBackward a, std::int64_t runs) {
    const std::int64_t position = warp_number() / runs;
    const std::int64_t column = (warp_number() % runs * warp_size + lane_number()) * n;
    if (position >= a.position_rows || column >= a.width) return;
    float* to = a.dpositions + position * a.width + column;
    float sum[n] = {};
    if (a.positions_into == Into::Accumulate) load_sums(to, sum);
    const std::int64_t count =
        position < a.length && position < a.rows ? (a.rows - position + a.length - 1) / a.length : 0;
    add_rows<n>(sum, static_cast<const T*>(a.dx) + column, a.width, count,
                [&](std::int64_t i) { return position + i * a.length; });
    store_sums(to, sum);
}

LaunchShape threads_for(std::int64_t count, cudaStream_t stream) {
    return {dim3(blocks_for(count, threads)), dim3(threads), 0, stream};
}
LaunchShape warps_for(std::int64_t count, cudaStream_t stream) {
    return {dim3(blocks_for(count, warps)), dim3(threads), 0, stream};
}

template <class T, int n>
void add_up(const EmbeddingBackward& a, const Groups& groups, cudaStream_t stream) {
    const std::int64_t runs = blocks_for(a.width, warp_size * n);
    const std::int64_t most = std::min(a.rows, a.table_rows);
    if (most > 0)
        launch("embedding add_to_table", warps_for(most * runs, stream), &add_to_table<T, n>, a, groups,
               runs);
    if (a.dpositions == nullptr) return;
    launch("embedding add_to_positions", warps_for(a.position_rows * runs, stream), &add_to_positions<T, n>,
           a, runs);
}

}  // namespace

void embedding_forward(const EmbeddingForward& a, cudaStream_t stream) {
    if (a.rows == 0) return;
    with_storage(a.dtype, [&]<class T>(T*) {
        const LaunchShape shape = warps_for(a.rows, stream);
        if (packable<T>(a.width, {a.x, a.table, a.positions})) {
            launch("embedding gather", shape, &gather<T, Pack<T>::size>, a);
        } else {
            launch("embedding gather", shape, &gather<T, 1>, a);
        }
    });
}

std::int64_t embedding_scratch(std::int64_t rows, std::int64_t table_rows) {
    return 2 + 2 * table_rows + 3 * rows;
}

void embedding_backward(const EmbeddingBackward& a, cudaStream_t stream) {
    const Groups groups(a.scratch, a.rows, a.table_rows);
    const auto zero = [&](void* from, std::int64_t count) {  // elements of 4 bytes
        check(cudaMemsetAsync(from, 0, static_cast<std::size_t>(count) * 4, stream),
              "embedding: cudaMemsetAsync");
    };
    // Rows whose token is not there are not visited below.
    if (a.table_into == Into::Overwrite) zero(a.dtable, a.table_rows * a.width);
    zero(groups.totals, 2 + a.table_rows);
    if (a.rows > 0) {
        launch("embedding count_rows", threads_for(a.rows, stream), &count_rows, a, groups);
        launch("embedding reserve", threads_for(a.table_rows, stream), &reserve, a, groups);
        launch("embedding place", threads_for(a.rows, stream), &place, a, groups);
        launch("embedding put_in_order", threads_for(a.rows, stream), &put_in_order, a, groups);
    }
    with_storage(a.dtype, [&]<class T>(T*) {
        if (packable<T>(a.width, {a.dx, a.dtable, a.dpositions})) {
            add_up<T, Pack<T>::size>(a, groups, stream);
        } else {
            add_up<T, 1>(a, groups, stream);
        }
    });
}

}  // namespace trainctl::cuda
