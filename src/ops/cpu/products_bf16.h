// Products of attention tiles in bf16 by pairs, with float sums (AVX512_BF16): see tile.h. Internal to the
// including source (see loops.h).
#pragma once

#include "ops/cpu/products_f32.h"

namespace trainctl::cpu {
namespace {  // NOLINT

struct ProductBf16 {
    using Element = BFloat16;
    static constexpr int step = 2;
    static constexpr std::int64_t rows = 4;
    static constexpr std::int64_t inner_rows = simd::lanes;
    struct Session {};
    static simd::F multiply_add(const float* a, simd::F b, simd::F sum) {
        const __m512i pair =
            _mm512_set1_epi32(static_cast<int>(_mm_cvtsi128_si32(_mm_castps_si128(_mm_load_ss(a)))));
        return _mm512_dpbf16_ps(sum.v, (__m512bh)pair, (__m512bh)_mm512_castps_si512(b.v));
    }
    static simd::F unit(simd::F first, simd::F second) {
        const __m512i low = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(first.v));
        const __m512i high = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(second.v));
        return _mm512_castsi512_ps(_mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
    }
    // Subnormals become 0 here, which is nothing beside the other terms of a sum.
    static void put(BFloat16* p, simd::F x) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), (__m256i)_mm512_cvtneps_pbh(x.v));
    }
};

}  // namespace
}  // namespace trainctl::cpu
