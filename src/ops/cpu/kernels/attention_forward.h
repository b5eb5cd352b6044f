// Causal attention forward: keys and values of one head packed once, then one tile of queries at a time with
// the softmax on line. Internal to the including source.
#pragma once

#include "ops/cpu/loops.h"
#include "ops/cpu/mask.h"
#include "ops/cpu/math.h"
#include "ops/cpu/tile.h"

namespace trainctl::cpu {
namespace {  // NOLINT

constexpr std::int64_t tile = 64;  // queries and keys of one tile

// Hands out parts of a worker's scratch, each a whole number of 64-byte lines. With a null base it only
// counts.
class Carve {
  public:
    explicit Carve(std::byte* base) : base_(base) {}
    float* floats(std::int64_t count) {
        float* part = base_ == nullptr ? nullptr : reinterpret_cast<float*>(base_ + used_);
        used_ += round_up(count * static_cast<std::int64_t>(sizeof(float)), 64);
        return part;
    }
    [[nodiscard]] std::int64_t used() const { return used_; }

  private:
    std::byte* base_;
    std::int64_t used_ = 0;
};

// Sizes every tile buffer is made from.
template <class P>
struct TileSizes {
    std::int64_t dim;      // head_dim
    std::int64_t units;    // of one row of head_dim, padded so that transposed blocks fit
    std::int64_t columns;  // head_dim padded to vectors
    static constexpr std::int64_t tile_units = tile / P::step;

    explicit TileSizes(std::int64_t head_dim)
        : dim(head_dim),
          units(round_up((head_dim + P::step - 1) / P::step, simd::lanes)),
          columns(round_up(head_dim, simd::lanes)) {}
    // Units that hold anything: what products run over.
    [[nodiscard]] std::int64_t used_units() const { return (dim + P::step - 1) / P::step; }
};

template <class P>
struct ForwardScratch {
    ForwardScratch(const TileSizes<P>& sizes, std::int64_t tiles, Carve& carve)
        : k(carve.floats(tiles * tile * sizes.units)),
          v(carve.floats(tiles * TileSizes<P>::tile_units * sizes.columns)),
          q(carve.floats(tile * sizes.units)),
          qt(carve.floats(sizes.units * tile)),
          scores(carve.floats(tile * tile)),
          factors(carve.floats(2 * tile * tile)),
          pt(carve.floats(TileSizes<P>::tile_units * tile)),
          p(carve.floats(tile * TileSizes<P>::tile_units)),
          out(carve.floats(tile * sizes.columns)),
          top(carve.floats(tile)),
          total(carve.floats(tile)),
          rescale(carve.floats(tile)) {}
    // Of one key/value head, per tile of keys
    float* k;  // A[tile, units]
    float* v;  // B[tile / step, columns]
    // One tile of queries
    float* q;        // A[tile, units]: on the way to qt
    float* qt;       // B[units, tile]
    float* scores;   // [keys, queries]
    float* factors;  // dropout: [keys, queries] and a transposed copy
    float* pt;       // [keys / step, queries] units
    float* p;        // A[queries, keys / step]
    float* out;      // [tile, columns]
    float* top;      // running maximum of each query
    float* total;    // running sum of exponentials
    float* rescale;  // what `out` is multiplied by
};

// Where the rows of one head of one sample lie in packed qkv.
template <class T>
struct HeadRows {
    const T* q;
    const T* k;
    const T* v;
    std::int64_t stride;

    HeadRows(const AttentionShape& s, const void* qkv, std::int64_t sample, std::int64_t head) {
        stride = (s.heads + 2 * s.kv_heads) * s.head_dim;
        const T* row = static_cast<const T*>(qkv) + sample * s.length * stride;
        const std::int64_t kv = head / (s.heads / s.kv_heads);
        q = row + head * s.head_dim;
        k = row + (s.heads + kv) * s.head_dim;
        v = k + s.kv_heads * s.head_dim;
    }
};

// Dropout factors of a tile as [keys, queries]; elements run along keys, so they are made by rows and
// transposed. `factors`: two tiles.
inline void tile_factors(const AttentionShape& s, float* factors, std::int64_t sample, std::int64_t head,
                         std::int64_t q_begin, std::int64_t k_begin) {
    float* by_query = factors + tile * tile;
    for (std::int64_t query = 0; query < tile; ++query) {
        const std::int64_t element =
            ((s.first_head + head) * s.length + q_begin + query) * s.length + k_begin;
        for (std::int64_t key = 0; key < tile; key += simd::lanes) {
            store(by_query + query * tile + key,
                  dropout_factors(s.mask, static_cast<std::uint64_t>(sample), element + key), simd::Full{});
        }
    }
    transpose_units(factors, tile, by_query, tile, tile, tile);
}

// Where a tile of scores lies: on the diagonal a query sees the keys up to its own place only.
enum class Causal { Below, Diagonal };

// Softmax of a tile of scores [keys, queries] against the tiles before it, a vector of queries at a time, so
// that no sum runs across lanes. Leaves probabilities (not yet divided by their total) in pt, zeros beyond
// the keys that are seen, and in `rescale` what the output so far must be multiplied by.
template <class P, Causal where>
void softmax_tile(const AttentionShape& s, const ForwardScratch<P>& w, std::int64_t keys) {
    using simd::F;
    const bool drops = s.mask.probability > 0.0F;
    for (std::int64_t c = 0; c < tile; c += simd::lanes) {
        const std::int64_t seen =  // by any of these queries
            where == Causal::Diagonal && c + simd::lanes < keys ? c + simd::lanes : keys;
        const auto score = [&](std::int64_t key) {
            const F x = load(w.scores + key * tile + c, simd::Full{}) * F(s.scale);
            if constexpr (where == Causal::Diagonal) {
                return key > c ? select(simd::first_lanes(key - c), minus_infinity(), x) : x;
            }
            return x;
        };
        const F before = load(w.top + c, simd::Full{});
        F tops[4] = {before, minus_infinity(), minus_infinity(), minus_infinity()};
        std::int64_t key = 0;
        for (; key + 4 <= seen; key += 4) {
            for (int i = 0; i < 4; ++i) tops[i] = max(tops[i], score(key + i));
        }
        for (; key < seen; ++key) tops[0] = max(tops[0], score(key));
        const F top = max(max(tops[0], tops[1]), max(tops[2], tops[3]));
        const F rescale = exp(before - top);

        F sums[P::step];  // in registers: every loop over it has a constant length
        for (F& sum : sums) sum = F(0.0F);
        const auto put_unit = [&](std::int64_t unit, std::int64_t present) {
            F kept[2] = {F(0.0F), F(0.0F)};
            for (int i = 0; i < P::step; ++i) {
                if (i >= present) continue;
                const std::int64_t at = unit * P::step + i;
                kept[i] = exp(score(at) - top);
                sums[i] = sums[i] + kept[i];
                if (drops) kept[i] = kept[i] * load(w.factors + at * tile + c, simd::Full{});
            }
            store(w.pt + unit * tile + c, P::unit(kept[0], kept[1]), simd::Full{});
        };
        std::int64_t unit = 0;
        for (; (unit + 1) * P::step <= seen; ++unit) put_unit(unit, P::step);
        if (unit * P::step < seen) put_unit(unit++, seen % P::step);
        for (; unit < TileSizes<P>::tile_units; ++unit) store(w.pt + unit * tile + c, F(0.0F), simd::Full{});
        F sum = sums[0];
        for (int i = 1; i < P::step; ++i) sum = sum + sums[i];
        store(w.total + c, fma(load(w.total + c, simd::Full{}), rescale, sum), simd::Full{});
        store(w.top + c, top, simd::Full{});
        store(w.rescale + c, rescale, simd::Full{});
    }
}

// Packs the tiles of keys and values up to `end`.
template <class T, class P>
void pack_keys(const AttentionShape& s, const TileSizes<P>& sizes, const ForwardScratch<P>& w,
               const HeadRows<T>& at, std::int64_t end) {
    for (std::int64_t begin = 0; begin < end; begin += tile) {
        const std::int64_t keys = s.length - begin < tile ? s.length - begin : tile;
        const std::int64_t padded = round_up(keys, P::inner_rows);
        pack_a<P>(w.k + begin * sizes.units, sizes.units, padded, at.k + begin * at.stride, at.stride, keys,
                  s.head_dim);
        pack_b<P>(w.v + begin / P::step * sizes.columns, sizes.columns, padded, at.v + begin * at.stride,
                  at.stride, keys, s.head_dim);
    }
}

// One tile of queries against the packed keys.
template <class T, class P>
void forward_tile(const AttentionForwardArgs& a, const TileSizes<P>& sizes, const ForwardScratch<P>& w,
                  std::int64_t sample, std::int64_t head, std::int64_t q_begin) {
    using simd::F;
    const AttentionShape& s = a.shape;
    const HeadRows<T> at(s, a.qkv, sample, head);
    const std::int64_t rows = s.length - q_begin < tile ? s.length - q_begin : tile;
    const std::int64_t padded_rows = round_up(rows, P::rows);
    pack_a<P>(w.q, sizes.units, tile, at.q + q_begin * at.stride, at.stride, rows, s.head_dim);
    transpose_units(w.qt, tile, w.q, sizes.units, tile, sizes.units);
    for_vectors(tile, [&](std::int64_t i, auto lanes) {
        store(w.top + i, minus_infinity(), lanes);
        store(w.total + i, F(0.0F), lanes);
    });

    for (std::int64_t k_begin = 0; k_begin <= q_begin; k_begin += tile) {
        const std::int64_t keys = s.length - k_begin < tile ? s.length - k_begin : tile;
        const std::int64_t padded_keys = round_up(keys, P::inner_rows);
        multiply<P>(w.scores, tile, w.k + k_begin * sizes.units, sizes.units, w.qt, tile, padded_keys, tile,
                    sizes.used_units(), Sum::New);
        if (s.mask.probability > 0.0F) tile_factors(s, w.factors, sample, head, q_begin, k_begin);
        if (k_begin == q_begin) {
            softmax_tile<P, Causal::Diagonal>(s, w, keys);
        } else {
            softmax_tile<P, Causal::Below>(s, w, keys);
        }
        transpose_units(w.p, TileSizes<P>::tile_units, w.pt, tile, TileSizes<P>::tile_units, tile);
        for (std::int64_t row = 0; k_begin > 0 && row < rows; ++row) {
            if (w.rescale[row] == 1.0F) continue;
            for (std::int64_t i = 0; i < sizes.columns; i += simd::lanes) {
                float* out = w.out + row * sizes.columns + i;
                store(out, load(out, simd::Full{}) * F(w.rescale[row]), simd::Full{});
            }
        }
        multiply<P>(w.out, sizes.columns, w.p, TileSizes<P>::tile_units,
                    w.v + k_begin / P::step * sizes.columns, sizes.columns, padded_rows, sizes.columns,
                    padded_keys / P::step, k_begin == 0 ? Sum::New : Sum::Added);
    }

    float* lse = a.lse + (sample * s.heads + head) * s.length + q_begin;
    for_vectors(rows, [&](std::int64_t i, auto lanes) {
        const F total = load(w.total + i, simd::Full{});
        store(lse + i, load(w.top + i, simd::Full{}) + log(total), lanes);
        store(w.rescale + i, F(1.0F) / total, simd::Full{});
    });
    T* out = static_cast<T*>(a.out) + ((sample * s.length + q_begin) * s.heads + head) * s.head_dim;
    for (std::int64_t row = 0; row < rows; ++row) {
        for_vectors(s.head_dim, [&](std::int64_t i, auto lanes) {
            store(out + row * s.heads * s.head_dim + i,
                  load(w.out + row * sizes.columns + i, simd::Full{}) * F(w.rescale[row]), lanes);
        });
    }
}

// Tiles `piece`, `piece` + `pieces`, ... of all query heads that share one key/value head.
template <class T>
void forward_piece(const AttentionForwardArgs& a, std::int64_t sample, std::int64_t kv_head,
                   std::int64_t piece, std::int64_t pieces, std::byte* scratch) {
    using P = typename ProductFor<T>::Type;
    const AttentionShape& s = a.shape;
    const TileSizes<P> sizes(s.head_dim);
    const std::int64_t tiles = (s.length + tile - 1) / tile;
    Carve carve(scratch);
    const ForwardScratch<P> w(sizes, tiles, carve);
    [[maybe_unused]] const typename P::Session session;
    const std::int64_t group = s.heads / s.kv_heads;
    const std::int64_t last = piece + (tiles - 1 - piece) / pieces * pieces;
    pack_keys<T>(s, sizes, w, HeadRows<T>(s, a.qkv, sample, kv_head * group),
                 (last + 1) * tile < s.length ? (last + 1) * tile : s.length);
    for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        for (std::int64_t q_tile = piece; q_tile < tiles; q_tile += pieces)
            forward_tile<T>(a, sizes, w, sample, head, q_tile * tile);
    }
}

}  // namespace
}  // namespace trainctl::cpu
