// Causal attention backward: all queries of all heads that share one key/value head, by one worker, so that
// every sum has one order. Internal to the including source.
#pragma once

#include "ops/cpu/kernels/attention_forward.h"

namespace trainctl::cpu {
namespace {  // NOLINT

// With s = scale q k, p = e^(s - lse), mask m:  dv_j = sum_i m p do_i;  dp = m (do . v);
// ds = p (dp - do . o);  dq_i = scale sum_j ds k_j;  dk_j = scale sum_i ds q_i.
// Scores are made transposed ([keys, queries]), so that p and ds are at once the left factors of dv and dk.
template <class P>
struct BackwardScratch {
    BackwardScratch(const TileSizes<P>& s, std::int64_t tiles, Carve& carve)
        : qt(carve.floats(tiles * s.units * tile)),
          dot(carve.floats(tiles * s.units * tile)),
          q(carve.floats(tiles * TileSizes<P>::tile_units * s.columns)),
          dout(carve.floats(tiles * TileSizes<P>::tile_units * s.columns)),
          lse(carve.floats(tiles * tile)),
          delta(carve.floats(tiles * tile)),
          dq(carve.floats(tiles * tile * s.columns)),
          dk(carve.floats(tiles * tile * s.columns)),
          dv(carve.floats(tiles * tile * s.columns)),
          rows(carve.floats(tile * s.units)),
          k(carve.floats(tile * s.units)),
          v(carve.floats(tile * s.units)),
          kb(carve.floats(TileSizes<P>::tile_units * s.columns)),
          scores(carve.floats(tile * tile)),
          dp(carve.floats(tile * tile)),
          factors(carve.floats(2 * tile * tile)),
          p(carve.floats(tile * TileSizes<P>::tile_units)),
          ds(carve.floats(tile * TileSizes<P>::tile_units)),
          dst(carve.floats(tile * TileSizes<P>::tile_units)) {}
    // Of one query head, per tile of queries
    float* qt;     // B[units, tile]
    float* dot;    // B[units, tile]: of dout
    float* q;      // B[tile / step, columns]
    float* dout;   // B[tile / step, columns]
    float* lse;    // [tile]
    float* delta;  // [tile]: do . o
    float* dq;     // [tile, columns]
    // Of the key/value head
    float* dk;  // [length, columns]
    float* dv;
    // One tile
    float* rows;     // A[tile, units]: on the way to qt and dot
    float* k;        // A[tile, units]
    float* v;        // A[tile, units]
    float* kb;       // B[tile / step, columns]
    float* scores;   // [keys, queries]
    float* dp;       // [keys, queries], then ds
    float* factors;  // dropout: [keys, queries] and a transposed copy
    float* p;        // A[keys, queries]
    float* ds;       // A[keys, queries]
    float* dst;      // A[queries, keys]
};

// Packs queries and output gradients of one head, and the sums do . o.
template <class T, class P>
void prepare_head(const AttentionBackwardArgs& a, const TileSizes<P>& sizes, const BackwardScratch<P>& w,
                  std::int64_t sample, std::int64_t head) {
    using simd::F;
    const AttentionShape& s = a.shape;
    const HeadRows<T> at(s, a.qkv, sample, head);
    const std::int64_t out_stride = s.heads * s.head_dim;
    const std::int64_t out_begin = sample * s.length * out_stride + head * s.head_dim;
    const T* dout = static_cast<const T*>(a.dout) + out_begin;
    const T* out = static_cast<const T*>(a.out) + out_begin;
    const float* lse = a.lse + (sample * s.heads + head) * s.length;
    for (std::int64_t begin = 0; begin < s.length; begin += tile) {
        const std::int64_t rows = s.length - begin < tile ? s.length - begin : tile;
        const std::int64_t index = begin / tile;
        const T* q_rows = at.q + begin * at.stride;
        const T* dout_rows = dout + begin * out_stride;
        pack_a<P>(w.rows, sizes.units, tile, q_rows, at.stride, rows, s.head_dim);
        transpose_units(w.qt + index * sizes.units * tile, tile, w.rows, sizes.units, tile, sizes.units);
        pack_a<P>(w.rows, sizes.units, tile, dout_rows, out_stride, rows, s.head_dim);
        transpose_units(w.dot + index * sizes.units * tile, tile, w.rows, sizes.units, tile, sizes.units);
        const std::int64_t block = TileSizes<P>::tile_units * sizes.columns;
        pack_b<P>(w.q + index * block, sizes.columns, tile, q_rows, at.stride, rows, s.head_dim);
        pack_b<P>(w.dout + index * block, sizes.columns, tile, dout_rows, out_stride, rows, s.head_dim);
        for (std::int64_t row = 0; row < tile; ++row) {
            Totals sum;
            if (row < rows) {
                const T* x = dout_rows + row * out_stride;
                const T* y = out + (begin + row) * out_stride;
                for_vectors_by_four(s.head_dim, [&](std::int64_t i, auto lanes, int which) {
                    sum.part[which] = fma(load(x + i, lanes), load(y + i, lanes), sum.part[which]);
                });
            }
            w.delta[begin + row] = sum.total();
            w.lse[begin + row] = row < rows ? lse[begin + row] : 0.0F;
        }
    }
}

// From scores and dp to p and ds (both [keys, queries] elements), and ds in float over dp.
template <class P>
void tile_gradients(const AttentionShape& s, const BackwardScratch<P>& w, std::int64_t q_begin,
                    std::int64_t k_begin, std::int64_t padded_keys) {
    using Element = typename P::Element;
    using simd::F;
    const std::int64_t queries = s.length - q_begin < tile ? s.length - q_begin : tile;
    const bool whole = q_begin > k_begin && queries == tile && s.length - k_begin >= tile;
    const bool drops = s.mask.probability > 0.0F;
    for (std::int64_t key = 0; key < padded_keys; ++key) {
        auto* p = reinterpret_cast<Element*>(w.p + key * TileSizes<P>::tile_units);
        auto* ds = reinterpret_cast<Element*>(w.ds + key * TileSizes<P>::tile_units);
        // Query c of the tile sees this key iff q_begin + c >= k_begin + key.
        const std::int64_t first = k_begin + key - q_begin;
        for (std::int64_t c = 0; c < tile; c += simd::lanes) {
            const std::int64_t at = key * tile + c;
            F probability =
                exp(load(w.scores + at, simd::Full{}) * F(s.scale) - load(w.lse + q_begin + c, simd::Full{}));
            F kept = probability;
            F gradient = load(w.dp + at, simd::Full{});
            if (drops) {
                const F factor = load(w.factors + at, simd::Full{});
                kept = kept * factor;
                gradient = gradient * factor;
            }
            gradient = probability * (gradient - load(w.delta + q_begin + c, simd::Full{}));
            if (!whole) {
                const std::int64_t hidden = first - c;     // lanes before it do not see the key
                const std::int64_t present = queries - c;  // lanes from it on do not exist
                const auto upto = simd::first_lanes(present < 0             ? 0
                                                    : present < simd::lanes ? present
                                                                            : simd::lanes);
                const auto before = simd::first_lanes(hidden < 0             ? 0
                                                      : hidden < simd::lanes ? hidden
                                                                             : simd::lanes);
                kept = select(upto, select(before, F(0.0F), kept), F(0.0F));
                gradient = select(upto, select(before, F(0.0F), gradient), F(0.0F));
            }
            P::put(p + c, kept);
            P::put(ds + c, gradient);
            store(w.dp + at, gradient, simd::Full{});
        }
    }
}

// A[queries, keys] elements from ds[keys, queries] in float.
template <class P>
void transpose_gradients(const BackwardScratch<P>& w, std::int64_t padded_keys) {
    using Element = typename P::Element;
    for (std::int64_t key = 0; key < padded_keys; key += simd::lanes) {
        for (std::int64_t query = 0; query < tile; query += simd::lanes) {
            simd::F block[simd::lanes];
            for (int i = 0; i < simd::lanes; ++i) {
                block[i] = load(w.dp + (key + i) * tile + query, simd::Full{});
            }
            simd::transpose(block);
            for (int i = 0; i < simd::lanes; ++i) {
                P::put(reinterpret_cast<Element*>(w.dst + (query + i) * TileSizes<P>::tile_units) + key,
                       block[i]);
            }
        }
    }
}

template <class T>
void write_gradient(T* to, std::int64_t stride, const float* from, std::int64_t columns, std::int64_t rows,
                    std::int64_t dim, float scale) {
    for (std::int64_t row = 0; row < rows; ++row) {
        for_vectors(dim, [&](std::int64_t i, auto lanes) {
            store(to + row * stride + i, load(from + row * columns + i, simd::Full{}) * simd::F(scale),
                  lanes);
        });
    }
}

inline void clear(float* p, std::int64_t count) {
    for_vectors(count, [&](std::int64_t i, auto lanes) { store(p + i, simd::F(0.0F), lanes); });
}

// All of one key/value head of one sample.
template <class T>
void backward_head(const AttentionBackwardArgs& a, std::int64_t sample, std::int64_t kv_head,
                   std::byte* scratch) {
    using P = typename ProductFor<T>::Type;
    const AttentionShape& s = a.shape;
    const TileSizes<P> sizes(s.head_dim);
    const std::int64_t tiles = (s.length + tile - 1) / tile;
    Carve carve(scratch);
    const BackwardScratch<P> w(sizes, tiles, carve);
    [[maybe_unused]] const typename P::Session session;
    const std::int64_t group = s.heads / s.kv_heads;
    const std::int64_t block = TileSizes<P>::tile_units * sizes.columns;
    clear(w.dk, tiles * tile * sizes.columns);
    clear(w.dv, tiles * tile * sizes.columns);
    const HeadRows<T> at(s, a.qkv, sample, kv_head * group);
    T* dqkv = static_cast<T*>(a.dqkv) + sample * s.length * at.stride;

    for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        prepare_head<T>(a, sizes, w, sample, head);
        clear(w.dq, tiles * tile * sizes.columns);
        for (std::int64_t k_begin = 0; k_begin < s.length; k_begin += tile) {
            const std::int64_t keys = s.length - k_begin < tile ? s.length - k_begin : tile;
            const std::int64_t padded_keys = round_up(keys, P::inner_rows);
            const T* k_rows = at.k + k_begin * at.stride;
            pack_a<P>(w.k, sizes.units, padded_keys, k_rows, at.stride, keys, s.head_dim);
            pack_b<P>(w.kb, sizes.columns, padded_keys, k_rows, at.stride, keys, s.head_dim);
            pack_a<P>(w.v, sizes.units, padded_keys, at.v + k_begin * at.stride, at.stride, keys, s.head_dim);
            float* dk = w.dk + k_begin * sizes.columns;
            float* dv = w.dv + k_begin * sizes.columns;
            for (std::int64_t q_begin = k_begin; q_begin < s.length; q_begin += tile) {
                const std::int64_t index = q_begin / tile;
                multiply<P>(w.scores, tile, w.k, sizes.units, w.qt + index * sizes.units * tile, tile,
                            padded_keys, tile, sizes.used_units(), Sum::New);
                multiply<P>(w.dp, tile, w.v, sizes.units, w.dot + index * sizes.units * tile, tile,
                            padded_keys, tile, sizes.used_units(), Sum::New);
                if (s.mask.probability > 0.0F) tile_factors(s, w.factors, sample, head, q_begin, k_begin);
                tile_gradients(s, w, q_begin, k_begin, padded_keys);
                transpose_gradients(w, padded_keys);
                multiply<P>(dv, sizes.columns, w.p, TileSizes<P>::tile_units, w.dout + index * block,
                            sizes.columns, padded_keys, sizes.columns, TileSizes<P>::tile_units, Sum::Added);
                multiply<P>(dk, sizes.columns, w.ds, TileSizes<P>::tile_units, w.q + index * block,
                            sizes.columns, padded_keys, sizes.columns, TileSizes<P>::tile_units, Sum::Added);
                multiply<P>(w.dq + q_begin * sizes.columns, sizes.columns, w.dst, TileSizes<P>::tile_units,
                            w.kb, sizes.columns, tile, sizes.columns, padded_keys / P::step, Sum::Added);
            }
        }
        write_gradient(dqkv + head * s.head_dim, at.stride, w.dq, sizes.columns, s.length, s.head_dim,
                       s.scale);
    }
    T* dk = dqkv + (s.heads + kv_head) * s.head_dim;
    write_gradient(dk, at.stride, w.dk, sizes.columns, s.length, s.head_dim, s.scale);
    write_gradient(dk + s.kv_heads * s.head_dim, at.stride, w.dv, sizes.columns, s.length, s.head_dim, 1.0F);
}

}  // namespace
}  // namespace trainctl::cpu
