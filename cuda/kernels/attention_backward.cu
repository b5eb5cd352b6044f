// Backward in two passes, both of which make the probabilities again, so that every sum has one owner and one
// order: first the gradients of queries (a warp owns queries, keys and values pass by), then those of keys
// and values (a warp owns keys, the queries of all heads that read them pass by).
//
// With s = scale q k, p = e^(s - lse), mask m:  dv_j = sum_i m p do_i;  dp = m (do . v);  ds = p (dp -
// delta), delta = do . o; dq_i = scale sum_j ds k_j;  dk_j = scale sum_i ds q_i.
#include "cuda/kernels/attention_backward.h"
#include "cuda/kernels/attention_f32.h"
#include "cuda/kernels/attention_host.h"
#include "cuda/kernels/attention_tile.h"
#include "cuda/launch.h"

namespace trainctl::cuda {
namespace {

template <int row_tiles, int column_tiles>
__device__ void scale_sums(float (&sums)[row_tiles][column_tiles][4], float scale) {
#pragma unroll
    for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
        for (int j = 0; j < column_tiles; ++j) {
#pragma unroll
            for (int k = 0; k < 4; ++k) sums[i][j][k] *= scale;
        }
    }
}

// a . b over a row, made together by the four lanes that share it, `piece` neighbouring elements each.
template <int columns, int piece, class T>
__device__ float row_product(const T* a, const T* b, int dim) {
    struct alignas(piece * sizeof(T)) Piece {
        T lane[piece];
    };
    float sum = 0.0F;
#pragma unroll
    for (int step = 0; step < columns; step += 4 * piece) {
        const int column = step + static_cast<int>(threadIdx.x) % 4 * piece;
        if (column >= dim) continue;
        const Piece x = *reinterpret_cast<const Piece*>(a + column);
        const Piece y = *reinterpret_cast<const Piece*>(b + column);
#pragma unroll
        for (int i = 0; i < piece; ++i) sum = fused_multiply_add(widen(x.lane[i]), widen(y.lane[i]), sum);
    }
    return row_sum(sum);
}
template <int columns, class T>
__device__ float row_product(const T* a, const T* b, int dim, RowAccess access) {
    if (access == RowAccess::By16Bytes) return row_product<columns, 8>(a, b, dim);
    return access == RowAccess::By8Bytes ? row_product<columns, 4>(a, b, dim)
                                         : row_product<columns, 1>(a, b, dim);
}

// 32 rows to a warp where registers allow, as in forward: the owned gradients take 64 registers of a lane per
// 64 columns, scores and their gradients 32 each per 32 columns.
template <int columns, Drops drops>
struct QuerySizes {
    static constexpr int warps = 4;
    static constexpr int row_tiles = columns <= (drops == Drops::None ? 128 : 64) ? 2 : 1;
    static constexpr int keys = columns <= 128 ? 32 : 16;
    static constexpr int queries = 16 * row_tiles * warps;
    static constexpr int threads = warps * warp_size;
    static constexpr int own = tile_elements(queries, columns);
    static constexpr int tile = tile_elements(keys, columns);
    static constexpr std::size_t shared_bytes =
        2 * static_cast<std::size_t>(2 * own + 4 * tile) + 8 * static_cast<std::size_t>(queries);
};

template <class T, int columns, Drops drops>
__global__ void __launch_bounds__(QuerySizes<columns, drops>::threads, 2)
    attention_query_kernel(T* dqkv, float* delta, const T* dout, const T* out, const float* lse, const T* qkv,
                           AttentionSettings s, DropoutMask mask, RowAccess access, int tiles) {
    using Sizes = QuerySizes<columns, drops>;
    constexpr int row_tiles = Sizes::row_tiles;
    constexpr int key_tiles = Sizes::keys / 8;
    const int warp_row = static_cast<int>(threadIdx.x) / warp_size * 16 * row_tiles;
    T* const q = shared_memory<T>();
    T* const dy = q + Sizes::own;
    T* const buffers = dy + Sizes::own;
    // Of this warp's rows. In shared memory because registers are short.
    float* const row_lse = reinterpret_cast<float*>(buffers + 4 * Sizes::tile) + warp_row;  // times log2(e)
    float* const row_delta = row_lse + Sizes::queries;

    // Longest first, as in forward.
    const BlockPlace place = block_place(s.heads, tiles);
    const int first = (tiles - 1 - place.tile) * Sizes::queries;
    const std::int64_t kv_head = place.head / (s.heads / s.kv_heads);
    const HeadRows<const T> keys = key_rows(qkv, s, place.sample, kv_head);
    const HeadRows<const T> values = value_rows(qkv, s, place.sample, kv_head);
    const HeadRows<const T> dout_rows = head_rows(dout, s, s.heads, place.sample, place.head);
    const int length = static_cast<int>(s.length);
    const int end = first + Sizes::queries < length ? first + Sizes::queries : length;
    const int first_query = first + warp_row;
    const float scale = s.scale * log2_e;
    const auto fetch_keys = [&](int first_key, T* buffer) {
        fetch_tile<Sizes::keys, columns, Sizes::threads>(buffer, keys, first_key, s, access);
        fetch_tile<Sizes::keys, columns, Sizes::threads>(buffer + Sizes::tile, values, first_key, s, access);
        commit_group();
    };

    fetch_tile<Sizes::queries, columns, Sizes::threads>(q, query_rows(qkv, s, place.sample, place.head),
                                                        first, s, access);
    fetch_tile<Sizes::queries, columns, Sizes::threads>(dy, dout_rows, first, s, access);
    fetch_keys(0, buffers);

    // Each warp's own rows; those beyond the length have zeros everywhere, which makes their gradients zeros
    // too.
    {
        const HeadRows<const T> out_rows = head_rows(out, s, s.heads, place.sample, place.head);
        const std::int64_t saved = (place.sample * s.heads + place.head) * s.length;
#pragma unroll
        for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
            for (int which = 0; which < 2; ++which) {
                const int query = first_query + sum_row(i, which);
                const int row = query < length ? query : length - 1;
                const float product = row_product<columns>(dout_rows.row(row), out_rows.row(row),
                                                           static_cast<int>(s.head_dim), access);
                if (threadIdx.x % 4 != 0) continue;
                row_lse[sum_row(i, which)] = query < length ? lse[saved + query] * log2_e : 0.0F;
                row_delta[sum_row(i, which)] = query < length ? product : 0.0F;
                if (query < length) delta[saved + query] = product;
            }
        }
    }  // the barrier in front of the first tile shows the rows to the warp's other lanes

    float dq[row_tiles][columns / 8][4];
    clear(dq);
    for (int first_key = 0; first_key < end; first_key += Sizes::keys) {
        const T* const k = buffers + first_key / Sizes::keys % 2 * 2 * Sizes::tile;
        wait_groups<0>();
        sync_block();
        if (first_key + Sizes::keys < end)
            fetch_keys(first_key + Sizes::keys,
                       buffers + (first_key / Sizes::keys + 1) % 2 * 2 * Sizes::tile);
        if (first_key >= first_query + 16 * row_tiles) continue;  // not seen by any query of this warp
        float p[row_tiles][key_tiles][4];
        clear(p);
        multiply_rows<columns>(p, q, warp_row, k, 0);
        if (first_key + Sizes::keys > first_query) hide_later_keys(p, first_query, first_key);
        float ds[row_tiles][key_tiles][4];
        clear(ds);
        multiply_rows<columns>(ds, dy, warp_row, k + Sizes::tile, 0);
#pragma unroll
        for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
            for (int which = 0; which < 2; ++which) {
                const float offset = -row_lse[sum_row(i, which)];
                const float subtrahend = row_delta[sum_row(i, which)];
#pragma unroll
                for (int j = 0; j < key_tiles; ++j) {
                    float factors[2] = {1.0F, 1.0F};
                    if constexpr (drops == Drops::Some) {
                        HeadDropout(mask, s, place.sample, place.head)
                            .two(factors, first_query + sum_row(i, which), first_key + sum_column(j));
                    }
#pragma unroll
                    for (int c = 0; c < 2; ++c) {
                        const float probability =
                            exp2_approximate(fused_multiply_add(p[i][j][2 * which + c], scale, offset));
                        float& gradient = ds[i][j][2 * which + c];
                        gradient = probability * (gradient * factors[c] - subtrahend);
                    }
                }
            }
        }
        multiply_columns<columns>(dq, LeftOperand<T, row_tiles, key_tiles / 2>(ds), k);
    }
    scale_sums(dq, s.scale);
    // A warp's queries have been read by nobody else.
    store_sums<columns>(query_rows(dqkv, s, place.sample, place.head), first_query, dq, q, warp_row, s,
                        access);
}

// Warps work in pairs on the same keys, since the gradients of keys and of values of 32 rows do not both fit
// into the registers of one. One makes the probabilities and owns the gradients of values; the other makes
// the gradients of probabilities and, with the probabilities handed over in shared memory, owns those of
// keys.
enum class Owner : std::uint8_t { Values, Keys };

template <int columns, Drops drops>
struct KeySizes {
    static constexpr int pairs = 2;
    static constexpr int threads = 2 * pairs * warp_size;
    static constexpr int row_tiles = columns <= 128 ? 2 : 1;
    static constexpr int keys = 16 * row_tiles * pairs;
    // Dropout takes registers too.
    static constexpr int queries = columns > 128 ? 16
                                                 : (columns > 64 ? 32 : 64) / (drops == Drops::None ? 1 : 2);
    static constexpr int own = tile_elements(keys, columns);
    static constexpr int tile = tile_elements(queries, columns);
    static constexpr int stage =
        2 * tile + 2 * queries * 2;                // elements: queries, output gradients, lse, delta
    static constexpr int handed = keys * queries;  // floats
    static constexpr std::size_t shared_bytes =
        2 * static_cast<std::size_t>(2 * own + 2 * stage) + 4 * static_cast<std::size_t>(handed);
};

template <class T, int columns, Drops drops>
__global__ void __launch_bounds__(KeySizes<columns, drops>::threads, 2)
    attention_key_kernel(T* dqkv, const T* dout, const float* lse, const float* delta, const T* qkv,
                         AttentionSettings s, DropoutMask mask, RowAccess access, int tiles) {
    using Sizes = KeySizes<columns, drops>;
    constexpr int row_tiles = Sizes::row_tiles;
    constexpr int query_tiles = Sizes::queries / 8;
    T* const k = shared_memory<T>();
    T* const v = k + Sizes::own;
    T* const stages = v + Sizes::own;

    // The first keys are seen by most queries.
    const BlockPlace place = block_place(s.kv_heads, tiles);
    const int first = place.tile * Sizes::keys;
    const int length = static_cast<int>(s.length);
    const int warp = static_cast<int>(threadIdx.x) / warp_size;
    const Owner owner = warp % 2 == 0 ? Owner::Values : Owner::Keys;
    const int warp_row = warp / 2 * 16 * row_tiles;
    const int first_key = first + warp_row;
    const float scale = s.scale * log2_e;
    // This lane's four sums of each block are handed over as one.
    auto* const handed = reinterpret_cast<Pack<float>*>(stages + 2 * Sizes::stage) +
                         warp / 2 * row_tiles * query_tiles * warp_size + threadIdx.x % warp_size;

    // Steps: tiles of queries from the first that sees a key on, head by head.
    const int group = static_cast<int>(s.heads / s.kv_heads);
    struct Step {
        int head;  // of the group
        int query;
        int stage;
    };
    const Step start{0, first / Sizes::queries * Sizes::queries, 0};
    const auto after = [&](const Step& step) {
        const int query = step.query + Sizes::queries;
        return query < length ? Step{step.head, query, 1 - step.stage}
                              : Step{step.head + 1, start.query, 1 - step.stage};
    };
    const auto fetch_step = [&](const Step& step) {
        T* const stage = stages + step.stage * Sizes::stage;
        auto* const saved = reinterpret_cast<float*>(stage + 2 * Sizes::tile);
        const std::int64_t head = place.head * group + step.head;
        const int query = step.query;
        fetch_tile<Sizes::queries, columns, Sizes::threads>(stage, query_rows(qkv, s, place.sample, head),
                                                            query, s, access);
        fetch_tile<Sizes::queries, columns, Sizes::threads>(
            stage + Sizes::tile, head_rows(dout, s, s.heads, place.sample, head), query, s, access);
        static_assert(2 * Sizes::queries <= Sizes::threads);
        if (const int i = static_cast<int>(threadIdx.x); i < 2 * Sizes::queries) {
            const float* rows =
                (i < Sizes::queries ? lse : delta) + (place.sample * s.heads + head) * s.length;
            const int row = query + i % Sizes::queries;
            fetch_4(saved + i, rows + row, row < length ? Fetch::Data : Fetch::Zeros);
        }
        commit_group();
    };

    fetch_tile<Sizes::keys, columns, Sizes::threads>(k, key_rows(qkv, s, place.sample, place.head), first, s,
                                                     access);
    fetch_tile<Sizes::keys, columns, Sizes::threads>(v, value_rows(qkv, s, place.sample, place.head), first,
                                                     s, access);
    fetch_step(start);

    T* const own = owner == Owner::Values ? k : v;  // rows that only this warp reads
    float sums[row_tiles][columns / 8][4];
    clear(sums);
    for (Step step = start; step.head < group; step = after(step)) {
        const T* const q = stages + step.stage * Sizes::stage;
        const T* const dy = q + Sizes::tile;
        const auto* const query_lse = reinterpret_cast<const float*>(dy + Sizes::tile);
        const float* const query_delta = query_lse + Sizes::queries;
        wait_groups<0>();
        sync_block();
        if (const Step next = after(step); next.head < group) fetch_step(next);
        const int first_query = step.query;
        const bool seen = first_query + Sizes::queries > first_key;  // any key of this pair
        const HeadDropout dropout(mask, s, place.sample, place.head * group + step.head);

        // Scores or gradients of probabilities. Transposed: a row is a key, so that they are left operands as
        // they are.
        float x[row_tiles][query_tiles][4];
        clear(x);
        if (seen) multiply_rows<columns>(x, own, warp_row, owner == Owner::Values ? q : dy, 0);
        if (seen && owner == Owner::Values) {
            if (first_query < first_key + 16 * row_tiles) hide_earlier_queries(x, first_key, first_query);
#pragma unroll
            for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
                for (int j = 0; j < query_tiles; ++j) {
                    Pack<float> probabilities;
#pragma unroll
                    for (int c = 0; c < 4; ++c) {
                        const int query = sum_column(j) + c % 2;
                        const int key = first_key + sum_row(i, c / 2);
                        float p = exp2_approximate(
                            fused_multiply_add(x[i][j][c], scale, -query_lse[query] * log2_e));
                        probabilities.lane[c] = p;
                        if constexpr (drops == Drops::Some) p *= dropout.one(first_query + query, key);
                        x[i][j][c] = p;
                    }
                    handed[(i * query_tiles + j) * warp_size] = probabilities;
                }
            }
        }
        sync_block();
        if (!seen) continue;
        if (owner == Owner::Keys) {
#pragma unroll
            for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
                for (int j = 0; j < query_tiles; ++j) {
                    const Pack<float> probabilities = handed[(i * query_tiles + j) * warp_size];
#pragma unroll
                    for (int c = 0; c < 4; ++c) {
                        const int query = sum_column(j) + c % 2;
                        float gradient = x[i][j][c];
                        if constexpr (drops == Drops::Some)
                            gradient *= dropout.one(first_query + query, first_key + sum_row(i, c / 2));
                        x[i][j][c] = probabilities.lane[c] * (gradient - query_delta[query]);
                    }
                }
            }
        }
        multiply_columns<columns>(sums, LeftOperand<T, row_tiles, query_tiles / 2>(x),
                                  owner == Owner::Values ? dy : q);
    }
    if (owner == Owner::Keys) scale_sums(sums, s.scale);
    store_sums<columns>(owner == Owner::Values ? value_rows(dqkv, s, place.sample, place.head)
                                               : key_rows(dqkv, s, place.sample, place.head),
                        first_key, sums, own, warp_row, s, access);
}

template <class T, int columns, Drops drops>
void start(T* dqkv, const T* dout, const T* out, const float* lse, const T* qkv, float* delta,
           const AttentionSettings& s, cudaStream_t stream) {
    using Query = QuerySizes<columns, drops>;
    using Key = KeySizes<columns, drops>;
    static_assert(Query::shared_bytes <= largest_shared_bytes);
    static_assert(Key::shared_bytes <= largest_shared_bytes);
    const RowAccess access = row_access(s, {dqkv, dout, out, qkv});
    const DropoutMask mask(s.dropout);
    const unsigned query_tiles = blocks_for(s.length, Query::queries);
    launch("attention backward, queries",
           {{static_cast<unsigned>(s.batch * s.heads) * query_tiles, 1, 1},
            {Query::threads, 1, 1},
            Query::shared_bytes,
            stream},
           &attention_query_kernel<T, columns, drops>, dqkv, delta, dout, out, lse, qkv, s, mask, access,
           static_cast<int>(query_tiles));
    const unsigned key_tiles = blocks_for(s.length, Key::keys);
    launch("attention backward, keys and values",
           {{static_cast<unsigned>(s.batch * s.kv_heads) * key_tiles, 1, 1},
            {Key::threads, 1, 1},
            Key::shared_bytes,
            stream},
           &attention_key_kernel<T, columns, drops>, dqkv, dout, lse, delta, qkv, s, mask, access,
           static_cast<int>(key_tiles));
}

}  // namespace

void attention_backward(void* dqkv, const void* dout, const void* out, const float* lse, const void* qkv,
                        float* delta, DType dtype, const AttentionSettings& settings, cudaStream_t stream) {
    if (settings.batch * settings.length == 0) return;
    if (dtype == DType::F32) {
        attention_backward_f32(static_cast<float*>(dqkv), static_cast<const float*>(dout),
                               static_cast<const float*>(out), lse, static_cast<const float*>(qkv), delta,
                               settings, stream);
        return;
    }
    with_head_kind(dtype, settings, [&]<class T, int columns, Drops drops>(HeadKind<T, columns, drops>) {
        start<T, columns, drops>(static_cast<T*>(dqkv), static_cast<const T*>(dout),
                                 static_cast<const T*>(out), lse, static_cast<const T*>(qkv), delta, settings,
                                 stream);
    });
}

}  // namespace trainctl::cuda
