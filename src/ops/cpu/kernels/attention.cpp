// The attention table: work shared out, scratch counted, and rotary position embedding.
#include "ops/cpu/kernels/attention_backward.h"

namespace trainctl::cpu {
namespace {

using simd::F;

template <class T>
std::int64_t forward_bytes(const AttentionShape& s) {
    using P = typename ProductFor<T>::Type;
    Carve carve(nullptr);
    const ForwardScratch<P> counted(TileSizes<P>(s.head_dim), (s.length + tile - 1) / tile, carve);
    return carve.used();
}

template <class T>
std::int64_t backward_bytes(const AttentionShape& s) {
    using P = typename ProductFor<T>::Type;
    Carve carve(nullptr);
    const BackwardScratch<P> counted(TileSizes<P>(s.head_dim), (s.length + tile - 1) / tile, carve);
    return carve.used();
}

std::int64_t forward_scratch(const AttentionShape& s, DType dtype) {
    std::int64_t bytes = 0;
    with_storage(dtype, [&]<class T>(T*) { bytes = forward_bytes<T>(s); });
    return bytes;
}

std::int64_t backward_scratch(const AttentionShape& s, DType dtype) {
    std::int64_t bytes = 0;
    with_storage(dtype, [&]<class T>(T*) { bytes = backward_bytes<T>(s); });
    return bytes;
}

void forward(const AttentionForwardArgs& a) {
    const AttentionShape& s = a.shape;
    const std::int64_t tiles = (s.length + tile - 1) / tile;
    const std::int64_t heads = s.batch * s.kv_heads;
    // Every piece packs the keys again: several for one head only where there are too few heads for all
    // workers.
    const std::int64_t wanted = a.threads > 1 ? (4 * a.threads + heads - 1) / heads : 1;
    const std::int64_t pieces = wanted < tiles ? wanted : tiles;
    const std::int64_t bytes = forward_scratch(s, a.dtype);
    with_storage(a.dtype, [&]<class T>(T*) {
        parallel_for_dynamic(a.threads, heads * pieces, [&](std::int64_t index, int worker) {
            const std::int64_t head = index / pieces;
            forward_piece<T>(a, head / s.kv_heads, head % s.kv_heads, index % pieces, pieces,
                             a.scratch + worker * bytes);
        });
    });
}

void backward(const AttentionBackwardArgs& a) {
    const AttentionShape& s = a.shape;
    const std::int64_t bytes = backward_scratch(s, a.dtype);
    with_storage(a.dtype, [&]<class T>(T*) {
        parallel_for_dynamic(a.threads, s.batch * s.kv_heads, [&](std::int64_t index, int worker) {
            backward_head<T>(a, index / s.kv_heads, index % s.kv_heads, a.scratch + worker * bytes);
        });
    });
}

// Cosines and sines of a vector of pairs from [.., 2].
void load_pairs(const float* table, simd::Full, F& cosine, F& sine) {
    deinterleave(load(table, simd::Full{}), load(table + simd::lanes, simd::Full{}), cosine, sine);
}
void load_pairs(const float* table, simd::Part part, F& cosine, F& sine) {
    const std::int64_t floats = 2 * part.count;
    const std::int64_t rest = floats - simd::lanes;
    F first;
    if (rest >= 0) {
        first = load(table, simd::Full{});
    } else {
        first = load(table, simd::Part{floats});
    }
    const F second = rest > 0 ? load(table + simd::lanes, simd::Part{rest}) : F(0.0F);
    deinterleave(first, second, cosine, sine);
}

void rope(const RopeArgs& a) {
    const AttentionShape& s = a.shape;
    const std::int64_t half = s.head_dim / 2;
    const std::int64_t stride = (s.heads + 2 * s.kv_heads) * s.head_dim;
    with_storage(a.dtype, [&]<class T>(T*) {
        parallel_for(a.threads, s.batch * s.length, [&](std::int64_t index) {
            T* row = static_cast<T*>(a.qkv) + index * stride;
            const float* table = a.table + index % s.length * half * 2;
            for_vectors(half, [&](std::int64_t i, auto lanes) {
                F cosine;
                F sine;
                load_pairs(table + 2 * i, lanes, cosine, sine);
                sine = sine * F(a.direction);
                for (std::int64_t head = 0; head < s.heads + s.kv_heads; ++head) {
                    T* at = row + head * s.head_dim + i;
                    const F first = load(at, lanes);
                    const F second = load(at + half, lanes);
                    store(at, fnma(second, sine, first * cosine), lanes);
                    store(at + half, fma(first, sine, second * cosine), lanes);
                }
            });
        });
    });
}

}  // namespace

template <>
AttentionKernels attention_kernels<Level>() {
    return {&forward, &backward, &rope, &forward_scratch, &backward_scratch};
}

}  // namespace trainctl::cpu
