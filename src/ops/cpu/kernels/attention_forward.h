// Causal attention forward, one tile of queries at a time, softmax on line. Internal to the including source.
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
    ForwardScratch(const TileSizes<P>& sizes, Carve& carve)
        : q(carve.floats(tile * sizes.units)),
          k(carve.floats(tile * sizes.units)),
          kt(carve.floats(sizes.units * tile)),
          v(carve.floats(TileSizes<P>::tile_units * sizes.columns)),
          scores(carve.floats(tile * tile)),
          p(carve.floats(tile * TileSizes<P>::tile_units)),
          out(carve.floats(tile * sizes.columns)),
          top(carve.floats(tile)),
          total(carve.floats(tile)) {}
    float* q;       // A[tile, units]
    float* k;       // A[tile, units]
    float* kt;      // B[units, tile]
    float* v;       // B[tile / step, columns]
    float* scores;  // [tile, tile]
    float* p;       // A[tile, tile / step]
    float* out;     // [tile, columns]
    float* top;     // running maximum of each row
    float* total;   // running sum of exponentials
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

// Softmax of one row of scores against what came before it; leaves probabilities (not yet divided by the
// total) in `p` and rescales the row of `out`. `valid`: keys this query may see.
template <class P>
void softmax_row(const AttentionShape& s, float* scores, typename P::Element* p, float* out, float& top,
                 float& total, std::int64_t valid, std::int64_t padded, std::int64_t columns, bool first,
                 std::int64_t sample, std::int64_t element) {
    using simd::F;
    F tops = minus_infinity();
    for_vectors(valid, [&](std::int64_t i, auto lanes) {
        const F x = load(scores + i, simd::Full{}) * F(s.scale);
        tops = max(tops, keep(x, lanes, minus_infinity()));
    });
    float new_top = simd::maximum(tops);
    if (!first && top > new_top) new_top = top;
    F sums(0.0F);
    for_vectors(valid, [&](std::int64_t i, auto lanes) {
        F x = exp(load(scores + i, simd::Full{}) * F(s.scale) - F(new_top));
        x = keep(x, lanes);
        sums = sums + x;
        if (s.mask.probability > 0.0F) {
            x = x * dropout_factors(s.mask, static_cast<std::uint64_t>(sample), element + i);
        }
        P::put(p + i, x);
    });
    for (std::int64_t i = round_up(valid, simd::lanes); i < padded; i += simd::lanes) P::put(p + i, F(0.0F));
    if (first) {
        total = simd::sum(sums);
    } else {
        const float factor = exp(top - new_top);
        total = total * factor + simd::sum(sums);
        if (factor != 1.0F) {
            for (std::int64_t i = 0; i < columns; i += simd::lanes) {
                store(out + i, load(out + i, simd::Full{}) * F(factor), simd::Full{});
            }
        }
    }
    top = new_top;
}

template <class T>
void forward_tile(const AttentionForwardArgs& a, std::int64_t sample, std::int64_t head, std::int64_t q_begin,
                  std::byte* scratch) {
    using P = typename ProductFor<T>::Type;
    using simd::F;
    const AttentionShape& s = a.shape;
    const TileSizes<P> sizes(s.head_dim);
    Carve carve(scratch);
    const ForwardScratch<P> w(sizes, carve);
    [[maybe_unused]] const typename P::Session session;
    const HeadRows<T> at(s, a.qkv, sample, head);
    const std::int64_t rows = s.length - q_begin < tile ? s.length - q_begin : tile;
    const std::int64_t padded_rows = round_up(rows, P::rows);
    pack_a<P>(w.q, sizes.units, padded_rows, at.q + q_begin * at.stride, at.stride, rows, s.head_dim);

    for (std::int64_t k_begin = 0; k_begin <= q_begin; k_begin += tile) {
        const std::int64_t keys = s.length - k_begin < tile ? s.length - k_begin : tile;
        const std::int64_t padded_keys = round_up(keys, P::inner_rows);
        pack_a<P>(w.k, sizes.units, padded_keys, at.k + k_begin * at.stride, at.stride, keys, s.head_dim);
        transpose_units(w.kt, tile, w.k, sizes.units, padded_keys, sizes.units);
        pack_b<P>(w.v, sizes.columns, padded_keys, at.v + k_begin * at.stride, at.stride, keys, s.head_dim);
        multiply<P>(w.scores, tile, w.q, sizes.units, w.kt, tile, padded_rows, padded_keys,
                    sizes.used_units(), Sum::New);
        for (std::int64_t row = 0; row < rows; ++row) {
            const std::int64_t seen = q_begin + row - k_begin + 1;
            softmax_row<P>(s, w.scores + row * tile,
                           reinterpret_cast<typename P::Element*>(w.p + row * TileSizes<P>::tile_units),
                           w.out + row * sizes.columns, w.top[row], w.total[row], seen < keys ? seen : keys,
                           padded_keys, sizes.columns, k_begin == 0, sample,
                           (head * s.length + q_begin + row) * s.length + k_begin);
        }
        multiply<P>(w.out, sizes.columns, w.p, TileSizes<P>::tile_units, w.v, sizes.columns, padded_rows,
                    sizes.columns, padded_keys / P::step, k_begin == 0 ? Sum::New : Sum::Added);
    }

    float* lse = a.lse + (sample * s.heads + head) * s.length + q_begin;
    T* out = static_cast<T*>(a.out) + ((sample * s.length + q_begin) * s.heads + head) * s.head_dim;
    for (std::int64_t row = 0; row < rows; ++row) {
        lse[row] = w.top[row] + log(w.total[row]);
        const F inverse = F(1.0F) / F(w.total[row]);
        for_vectors(s.head_dim, [&](std::int64_t i, auto lanes) {
            store(out + row * s.heads * s.head_dim + i,
                  load(w.out + row * sizes.columns + i, simd::Full{}) * inverse, lanes);
        });
    }
}

}  // namespace
}  // namespace trainctl::cpu
