// Forward: one block per tile of queries of one head; a warp owns 16 or 32 of them and keeps their output,
// maximum and total in registers while the tiles of keys and values pass by.
#include "cuda/kernels/attention_f32.h"
#include "cuda/kernels/attention_forward.h"
#include "cuda/kernels/attention_host.h"
#include "cuda/kernels/attention_tile.h"
#include "cuda/launch.h"

namespace trainctl::cuda {
namespace {

// 32 queries to a warp, so that what it reads of keys and values is used twice: shared memory would otherwise
// be slower than the tensor cores. That takes 64 registers of a lane per 64 columns of output, too many for
// wide heads, and as many again per 64 keys of scores.
template <int columns, Drops drops>
struct ForwardSizes {
    static constexpr int warps = 4;
    static constexpr int row_tiles = columns <= (drops == Drops::None ? 128 : 64) ? 2 : 1;
    static constexpr int keys = columns <= 64 && drops == Drops::None ? 64 : 32;
    static constexpr int queries = 16 * row_tiles * warps;
    static constexpr int threads = warps * warp_size;
    static constexpr int tile = tile_elements(keys, columns);
    static constexpr std::size_t shared_bytes =
        2 * static_cast<std::size_t>(tile_elements(queries, columns) + 4 * tile);
};

// Softmax on line. For each of a lane's rows: what is subtracted from its scores, and the sum of exponentials
// of this lane's columns. What is subtracted need not be the largest score: it stays as long as no
// exponential exceeds 2^headroom, since bringing all sums to a new one takes as many instructions as the
// products do.
inline constexpr float headroom = 8.0F;

template <int row_tiles>
struct RunningSoftmax {
    float top[row_tiles][2];
    float total[row_tiles][2];

    __device__ RunningSoftmax() {
#pragma unroll
        for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
            for (int which = 0; which < 2; ++which) {
                top[i][which] = -INFINITY;
                total[i][which] = 0.0F;
            }
        }
    }

    // From scores to probabilities (not yet divided by their total) in place; `sums`, the output so far, is
    // brought to the new maximum. scale includes log2(e).
    template <int key_tiles, int column_tiles>
    __device__ void add(float (&scores)[row_tiles][key_tiles][4], float (&sums)[row_tiles][column_tiles][4],
                        float scale) {
#pragma unroll
        for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
            for (int which = 0; which < 2; ++which) {
                float largest = top[i][which];
#pragma unroll
                for (int j = 0; j < key_tiles; ++j)
                    largest = fmaxf(largest, fmaxf(scores[i][j][2 * which], scores[i][j][2 * which + 1]));
                largest = row_max(largest);
                if ((largest - top[i][which]) * scale > headroom) {
                    const float rescale = exp2_approximate((top[i][which] - largest) * scale);
                    top[i][which] = largest;
                    total[i][which] *= rescale;
#pragma unroll
                    for (int j = 0; j < column_tiles; ++j) {
                        sums[i][j][2 * which] *= rescale;
                        sums[i][j][2 * which + 1] *= rescale;
                    }
                }
                const float offset = -top[i][which] * scale;
                float total_here = total[i][which];
#pragma unroll
                for (int j = 0; j < key_tiles; ++j) {
#pragma unroll
                    for (int k = 2 * which; k < 2 * which + 2; ++k) {
                        scores[i][j][k] =
                            exp2_approximate(fused_multiply_add(scores[i][j][k], scale, offset));
                        total_here += scores[i][j][k];
                    }
                }
                total[i][which] = total_here;
            }
        }
    }
};

template <int row_tiles, int key_tiles>
__device__ void drop(float (&probabilities)[row_tiles][key_tiles][4], const HeadDropout& dropout,
                     int first_query, int first_key) {
#pragma unroll
    for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
        for (int which = 0; which < 2; ++which) {
#pragma unroll
            for (int j = 0; j < key_tiles; ++j) {
                float factors[2];
                dropout.two(factors, first_query + sum_row(i, which), first_key + sum_column(j));
                probabilities[i][j][2 * which] *= factors[0];
                probabilities[i][j][2 * which + 1] *= factors[1];
            }
        }
    }
}

// Two tiles of keys and of values: while one of each is multiplied the next arrive.
template <class T, int columns, Drops drops>
__global__ void __launch_bounds__(ForwardSizes<columns, drops>::threads, 2)
    attention_forward_kernel(T* out, float* lse, const T* qkv, AttentionSettings s, DropoutMask mask,
                             RowAccess access, int tiles) {
    using Sizes = ForwardSizes<columns, drops>;
    constexpr int row_tiles = Sizes::row_tiles;
    T* const q = shared_memory<T>();
    T* const buffers = q + tile_elements(Sizes::queries, columns);

    // Later queries see more keys: they begin first, so that the last blocks to end are short ones.
    const BlockPlace place = block_place(s.heads, tiles);
    const int first = (tiles - 1 - place.tile) * Sizes::queries;
    const std::int64_t kv_head = place.head / (s.heads / s.kv_heads);
    const HeadRows<const T> keys = key_rows(qkv, s, place.sample, kv_head);
    const HeadRows<const T> values = value_rows(qkv, s, place.sample, kv_head);
    const int length = static_cast<int>(s.length);
    const int end = first + Sizes::queries < length ? first + Sizes::queries : length;
    const int warp_row = static_cast<int>(threadIdx.x) / warp_size * 16 * row_tiles;
    const int first_query = first + warp_row;
    const float scale = s.scale * log2_e;
    const auto fetch_keys = [&](int first_key, T* buffer) {
        fetch_tile<Sizes::keys, columns, Sizes::threads>(buffer, keys, first_key, s, access);
        fetch_tile<Sizes::keys, columns, Sizes::threads>(buffer + Sizes::tile, values, first_key, s, access);
        commit_group();
    };

    fetch_tile<Sizes::queries, columns, Sizes::threads>(q, query_rows(qkv, s, place.sample, place.head),
                                                        first, s, access);
    fetch_keys(0, buffers);

    float sums[row_tiles][columns / 8][4];
    clear(sums);
    RunningSoftmax<row_tiles> softmax;
    for (int first_key = 0; first_key < end; first_key += Sizes::keys) {
        const T* const k = buffers + first_key / Sizes::keys % 2 * 2 * Sizes::tile;
        wait_groups<0>();
        sync_block();
        if (first_key + Sizes::keys < end)
            fetch_keys(first_key + Sizes::keys,
                       buffers + (first_key / Sizes::keys + 1) % 2 * 2 * Sizes::tile);
        if (first_key >= first_query + 16 * row_tiles) continue;  // not seen by any query of this warp
        float scores[row_tiles][Sizes::keys / 8][4];
        clear(scores);
        multiply_rows<columns>(scores, q, warp_row, k, 0);
        if (first_key + Sizes::keys > first_query) hide_later_keys(scores, first_query, first_key);
        softmax.add(scores, sums, scale);
        if constexpr (drops == Drops::Some)
            drop(scores, HeadDropout(mask, s, place.sample, place.head), first_query, first_key);
        multiply_columns<columns>(sums, LeftOperand<T, row_tiles, Sizes::keys / 16>(scores), k + Sizes::tile);
    }

    float* const head_lse = lse + (place.sample * s.heads + place.head) * s.length;
#pragma unroll
    for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
        for (int which = 0; which < 2; ++which) {
            const float total = row_sum(softmax.total[i][which]);
            const float inverse = divide(1.0F, total);
            const int query = first_query + sum_row(i, which);
            if (threadIdx.x % 4 == 0 && query < length)
                head_lse[query] = fused_multiply_add(softmax.top[i][which], s.scale, log_accurate(total));
#pragma unroll
            for (int j = 0; j < columns / 8; ++j) {
                sums[i][j][2 * which] *= inverse;
                sums[i][j][2 * which + 1] *= inverse;
            }
        }
    }
    // A warp's queries have been read by nobody else.
    store_sums<columns>(head_rows(out, s, s.heads, place.sample, place.head), first_query, sums, q, warp_row,
                        s, access);
}

template <class T, int columns, Drops drops>
void start(T* out, float* lse, const T* qkv, const AttentionSettings& s, cudaStream_t stream) {
    using Sizes = ForwardSizes<columns, drops>;
    static_assert(Sizes::shared_bytes <= largest_shared_bytes);
    const unsigned tiles = blocks_for(s.length, Sizes::queries);
    const LaunchShape shape{{static_cast<unsigned>(s.batch * s.heads) * tiles, 1, 1},
                            {Sizes::threads, 1, 1},
                            Sizes::shared_bytes,
                            stream};
    launch("attention forward", shape, &attention_forward_kernel<T, columns, drops>, out, lse, qkv, s,
           DropoutMask(s.dropout), row_access(s, {out, qkv}), static_cast<int>(tiles));
}

}  // namespace

void attention_forward(void* out, float* lse, const void* qkv, DType dtype, const AttentionSettings& settings,
                       cudaStream_t stream) {
    if (settings.batch * settings.length == 0) return;
    if (dtype == DType::F32) {
        attention_forward_f32(static_cast<float*>(out), lse, static_cast<const float*>(qkv), settings,
                              stream);
        return;
    }
    with_head_kind(dtype, settings, [&]<class T, int columns, Drops drops>(HeadKind<T, columns, drops>) {
        start<T, columns, drops>(static_cast<T*>(out), lse, static_cast<const T*>(qkv), settings, stream);
    });
}

}  // namespace trainctl::cuda
