// The same three kernels as on tensor cores (attention_forward.cu, attention_backward.cu), one F32
// multiply-add at a time. A group of neighbouring lanes owns one row of the block's tile; each takes every
// lanes-th row of the other tile when it makes scores, every lanes-th column when it adds up what the row
// owns.
#include "cuda/kernels/attention_f32.h"
#include "cuda/kernels/attention_rows.h"
#include "cuda/launch.h"

namespace trainctl::cuda {
namespace {

template <int columns>
struct Sizes {
    static constexpr int threads = 256;
    static constexpr int rows = columns <= 128 ? 32 : 16;
    static constexpr int lanes = threads / rows;
    static constexpr int scores = rows / lanes;          // of one lane
    static constexpr int own_columns = columns / lanes;  // of one lane
    // One more than a tile is wide: neighbouring rows begin in different banks.
    static constexpr int stride = columns + 1;
    static constexpr int factor_stride = rows + 1;
    static constexpr int tile = rows * stride;
    static constexpr int factors = rows * factor_stride;
    static constexpr std::size_t forward_bytes = sizeof(float) * (3 * tile + factors);
    static constexpr std::size_t query_bytes = sizeof(float) * (4 * tile + factors);
    static constexpr std::size_t key_bytes = sizeof(float) * (4 * tile + 2 * factors);
};

// A lane's row in the block's tile and its place among those that share it.
template <int columns>
struct Lane {
    int row = static_cast<int>(threadIdx.x) / Sizes<columns>::lanes;
    int lane = static_cast<int>(threadIdx.x) % Sizes<columns>::lanes;

    // Over the lanes of a row
    static __device__ float sum(float x) {
        for (int mask = Sizes<columns>::lanes / 2; mask > 0; mask /= 2) x += shuffle_xor(x, mask);
        return x;
    }
    static __device__ float maximum(float x) {
        for (int mask = Sizes<columns>::lanes / 2; mask > 0; mask /= 2) x = fmaxf(x, shuffle_xor(x, mask));
        return x;
    }
};

// Block: rows `first` .. of a head to a tile; zeros beyond its length and its columns.
template <int columns>
__device__ void load_tile(float* tile, HeadRows<const float> from, int first, const AttentionSettings& s) {
    for (int i = static_cast<int>(threadIdx.x); i < Sizes<columns>::rows * columns;
         i += Sizes<columns>::threads) {
        const int row = i / columns;
        const int column = i % columns;
        const bool inside = first + row < s.length && column < s.head_dim;
        tile[row * Sizes<columns>::stride + column] = inside ? from.row(first + row)[column] : 0.0F;
    }
}

template <int columns>
__device__ float dot(const float* a, const float* b) {
    float sum = 0.0F;
    for (int i = 0; i < columns; ++i) sum = fused_multiply_add(a[i], b[i], sum);
    return sum;
}

// sums += factors (of this lane's row) times the rows of a tile.
template <int columns>
__device__ void add_rows(float (&sums)[Sizes<columns>::own_columns], const float* factors, const float* tile,
                         int lane) {
    for (int other = 0; other < Sizes<columns>::rows; ++other) {
        const float* row = tile + other * Sizes<columns>::stride + lane;
#pragma unroll
        for (int i = 0; i < Sizes<columns>::own_columns; ++i)
            sums[i] = fused_multiply_add(factors[other], row[i * Sizes<columns>::lanes], sums[i]);
    }
}

template <int columns>
__device__ void store_row(HeadRows<float> to, int row, const float (&sums)[Sizes<columns>::own_columns],
                          float factor, int lane, const AttentionSettings& s) {
    if (row >= s.length) return;
#pragma unroll
    for (int i = 0; i < Sizes<columns>::own_columns; ++i) {
        const int column = lane + i * Sizes<columns>::lanes;
        if (column < s.head_dim) to.row(row)[column] = sums[i] * factor;
    }
}

template <int columns, Drops drops>
__global__ void __launch_bounds__(Sizes<columns>::threads, 2)
    attention_forward_f32_kernel(float* out, float* lse, const float* qkv, AttentionSettings s,
                                 DropoutMask mask, int tiles) {
    using Size = Sizes<columns>;
    float* const q = shared_memory<float>();
    float* const k = q + Size::tile;
    float* const v = k + Size::tile;
    const Lane<columns> at;
    float* const p = v + Size::tile + at.row * Size::factor_stride;

    const BlockPlace place = block_place(s.heads, tiles);
    const int first = (tiles - 1 - place.tile) * Size::rows;
    const int query = first + at.row;
    const std::int64_t kv_head = place.head / (s.heads / s.kv_heads);
    load_tile<columns>(q, query_rows(qkv, s, place.sample, place.head), first, s);

    float top = -INFINITY;
    float total = 0.0F;
    float sums[Size::own_columns] = {};
    for (int first_key = 0; first_key <= first; first_key += Size::rows) {
        sync_block();
        load_tile<columns>(k, key_rows(qkv, s, place.sample, kv_head), first_key, s);
        load_tile<columns>(v, value_rows(qkv, s, place.sample, kv_head), first_key, s);
        sync_block();
        float scores[Size::scores];
        float largest = top;
#pragma unroll
        for (int i = 0; i < Size::scores; ++i) {
            const int key = at.lane + i * Size::lanes;
            scores[i] = first_key + key > query
                            ? -INFINITY
                            : s.scale * dot<columns>(q + at.row * Size::stride, k + key * Size::stride);
            largest = fmaxf(largest, scores[i]);
        }
        largest = Lane<columns>::maximum(largest);
        const float rescale = exp_accurate(top - largest);
        top = largest;
        total *= rescale;
#pragma unroll
        for (int i = 0; i < Size::scores; ++i) {
            const int key = at.lane + i * Size::lanes;
            float probability = exp_accurate(scores[i] - top);
            total += probability;
            if constexpr (drops == Drops::Some)
                probability *= HeadDropout(mask, s, place.sample, place.head).one(query, first_key + key);
            p[key] = probability;
        }
        sync_warp();
#pragma unroll
        for (int i = 0; i < Size::own_columns; ++i) sums[i] *= rescale;
        add_rows<columns>(sums, p, v, at.lane);
    }
    total = Lane<columns>::sum(total);
    store_row<columns>(head_rows(out, s, s.heads, place.sample, place.head), query, sums, divide(1.0F, total),
                       at.lane, s);
    if (at.lane == 0 && query < s.length)
        lse[(place.sample * s.heads + place.head) * s.length + query] = top + log_accurate(total);
}

template <int columns, Drops drops>
__global__ void __launch_bounds__(Sizes<columns>::threads, 2)
    attention_query_f32_kernel(float* dqkv, float* delta, const float* dout, const float* out,
                               const float* lse, const float* qkv, AttentionSettings s, DropoutMask mask,
                               int tiles) {
    using Size = Sizes<columns>;
    float* const q = shared_memory<float>();
    float* const dy = q + Size::tile;
    float* const k = dy + Size::tile;
    float* const v = k + Size::tile;
    const Lane<columns> at;
    float* const ds = v + Size::tile + at.row * Size::factor_stride;

    const BlockPlace place = block_place(s.heads, tiles);
    const int first = (tiles - 1 - place.tile) * Size::rows;
    const int query = first + at.row;
    const std::int64_t kv_head = place.head / (s.heads / s.kv_heads);
    load_tile<columns>(q, query_rows(qkv, s, place.sample, place.head), first, s);
    load_tile<columns>(dy, head_rows(dout, s, s.heads, place.sample, place.head), first, s);

    // Rows beyond the length have zeros everywhere, which makes their gradients zeros too.
    float row_lse = 0.0F;
    float row_delta = 0.0F;
    if (query < s.length) {
        const float* dout_row = head_rows(dout, s, s.heads, place.sample, place.head).row(query);
        const float* out_row = head_rows(out, s, s.heads, place.sample, place.head).row(query);
        for (int i = at.lane; i < s.head_dim; i += Size::lanes)
            row_delta = fused_multiply_add(dout_row[i], out_row[i], row_delta);
    }
    row_delta = Lane<columns>::sum(row_delta);
    if (query < s.length) {
        const std::int64_t row = (place.sample * s.heads + place.head) * s.length + query;
        row_lse = lse[row];
        if (at.lane == 0) delta[row] = row_delta;
    }

    float dq[Size::own_columns] = {};
    for (int first_key = 0; first_key <= first; first_key += Size::rows) {
        sync_block();
        load_tile<columns>(k, key_rows(qkv, s, place.sample, kv_head), first_key, s);
        load_tile<columns>(v, value_rows(qkv, s, place.sample, kv_head), first_key, s);
        sync_block();
        for (int key = at.lane; key < Size::rows; key += Size::lanes) {
            float gradient = 0.0F;
            if (first_key + key <= query) {
                const float score = dot<columns>(q + at.row * Size::stride, k + key * Size::stride);
                gradient = dot<columns>(dy + at.row * Size::stride, v + key * Size::stride);
                if constexpr (drops == Drops::Some)
                    gradient *= HeadDropout(mask, s, place.sample, place.head).one(query, first_key + key);
                gradient =
                    exp_accurate(fused_multiply_add(score, s.scale, -row_lse)) * (gradient - row_delta);
            }
            ds[key] = gradient;
        }
        sync_warp();
        add_rows<columns>(dq, ds, k, at.lane);
    }
    store_row<columns>(query_rows(dqkv, s, place.sample, place.head), query, dq, s.scale, at.lane, s);
}

template <int columns, Drops drops>
__global__ void __launch_bounds__(Sizes<columns>::threads, 2)
    attention_key_f32_kernel(float* dqkv, const float* dout, const float* lse, const float* delta,
                             const float* qkv, AttentionSettings s, DropoutMask mask, int tiles) {
    using Size = Sizes<columns>;
    float* const k = shared_memory<float>();
    float* const v = k + Size::tile;
    float* const q = v + Size::tile;
    float* const dy = q + Size::tile;
    const Lane<columns> at;
    float* const p = dy + Size::tile + at.row * Size::factor_stride;
    float* const ds = p + Size::factors;

    const BlockPlace place = block_place(s.kv_heads, tiles);
    const int first = place.tile * Size::rows;
    const int key = first + at.row;
    load_tile<columns>(k, key_rows(qkv, s, place.sample, place.head), first, s);
    load_tile<columns>(v, value_rows(qkv, s, place.sample, place.head), first, s);

    float dk[Size::own_columns] = {};
    float dv[Size::own_columns] = {};
    const std::int64_t group = s.heads / s.kv_heads;
    for (std::int64_t head = place.head * group; head < (place.head + 1) * group; ++head) {
        const std::int64_t saved = (place.sample * s.heads + head) * s.length;
        for (int first_query = first; first_query < s.length; first_query += Size::rows) {
            sync_block();
            load_tile<columns>(q, query_rows(qkv, s, place.sample, head), first_query, s);
            load_tile<columns>(dy, head_rows(dout, s, s.heads, place.sample, head), first_query, s);
            sync_block();
            for (int i = at.lane; i < Size::rows; i += Size::lanes) {
                const int query = first_query + i;
                float probability = 0.0F;
                float gradient = 0.0F;
                if (query >= key && query < s.length) {
                    const float score = dot<columns>(k + at.row * Size::stride, q + i * Size::stride);
                    gradient = dot<columns>(v + at.row * Size::stride, dy + i * Size::stride);
                    probability = exp_accurate(fused_multiply_add(score, s.scale, -lse[saved + query]));
                    float factor = 1.0F;
                    if constexpr (drops == Drops::Some)
                        factor = HeadDropout(mask, s, place.sample, head).one(query, key);
                    gradient = probability * (gradient * factor - delta[saved + query]);
                    probability *= factor;
                }
                p[i] = probability;
                ds[i] = gradient;
            }
            sync_warp();
            add_rows<columns>(dv, p, dy, at.lane);
            add_rows<columns>(dk, ds, q, at.lane);
        }
    }
    store_row<columns>(key_rows(dqkv, s, place.sample, place.head), key, dk, s.scale, at.lane, s);
    store_row<columns>(value_rows(dqkv, s, place.sample, place.head), key, dv, 1.0F, at.lane, s);
}

template <int columns, Drops drops>
struct Kind {};

template <int columns, class Run>
void with_dropout(const AttentionSettings& s, const Run& run) {
    if (s.dropout.probability > 0.0F) {
        run(Kind<columns, Drops::Some>{});
    } else {
        run(Kind<columns, Drops::None>{});
    }
}
template <class Run>
void with_kind(const AttentionSettings& s, const Run& run) {
    if (s.head_dim <= 64) {
        with_dropout<64>(s, run);
    } else if (s.head_dim <= 128) {
        with_dropout<128>(s, run);
    } else {
        with_dropout<256>(s, run);
    }
}

template <int columns>
LaunchShape shape_for(std::int64_t heads, const AttentionSettings& s, std::size_t shared_bytes,
                      cudaStream_t stream) {
    const unsigned tiles = blocks_for(s.length, Sizes<columns>::rows);
    return {{static_cast<unsigned>(s.batch * heads) * tiles, 1, 1},
            {Sizes<columns>::threads, 1, 1},
            shared_bytes,
            stream};
}

}  // namespace

void attention_forward_f32(float* out, float* lse, const float* qkv, const AttentionSettings& settings,
                           cudaStream_t stream) {
    with_kind(settings, [&]<int columns, Drops drops>(Kind<columns, drops>) {
        launch("attention forward, F32",
               shape_for<columns>(settings.heads, settings, Sizes<columns>::forward_bytes, stream),
               &attention_forward_f32_kernel<columns, drops>, out, lse, qkv, settings,
               DropoutMask(settings.dropout),
               static_cast<int>(blocks_for(settings.length, Sizes<columns>::rows)));
    });
}

void attention_backward_f32(float* dqkv, const float* dout, const float* out, const float* lse,
                            const float* qkv, float* delta, const AttentionSettings& settings,
                            cudaStream_t stream) {
    with_kind(settings, [&]<int columns, Drops drops>(Kind<columns, drops>) {
        const int tiles = static_cast<int>(blocks_for(settings.length, Sizes<columns>::rows));
        launch("attention backward, F32, queries",
               shape_for<columns>(settings.heads, settings, Sizes<columns>::query_bytes, stream),
               &attention_query_f32_kernel<columns, drops>, dqkv, delta, dout, out, lse, qkv, settings,
               DropoutMask(settings.dropout), tiles);
        launch("attention backward, F32, keys and values",
               shape_for<columns>(settings.kv_heads, settings, Sizes<columns>::key_bytes, stream),
               &attention_key_f32_kernel<columns, drops>, dqkv, dout, lse, delta, qkv, settings,
               DropoutMask(settings.dropout), tiles);
    });
}

}  // namespace trainctl::cuda
