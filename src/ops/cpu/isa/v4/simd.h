// Vectors of 16 floats (AVX-512). This file is what "simd.h" means in kernels compiled for x86-64-v4 and
// above; isa/v3/simd.h has the same names with 8 lanes. Everything is inline and internal to the level: no
// function of ours or of the standard library compiled here may be linked into code that runs on lesser
// machines.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "trainctl/tensor/dtype.h"

namespace trainctl::isa_v4 {

inline constexpr int lanes = 16;

// How many lanes of a vector an access touches. The hot loop uses Full, the end of a row Part.
struct Full {};
struct Part {
    std::int64_t count;  // 1 .. lanes - 1
    [[nodiscard]] __mmask16 mask() const { return static_cast<__mmask16>((1U << count) - 1U); }
};

struct F {
    __m512 v;
    F() = default;
    F(__m512 value) : v(value) {}
    explicit F(float value) : v(_mm512_set1_ps(value)) {}
};
using Mask = __mmask16;
struct I {  // 16 x 32 bits
    __m512i v;
    I() = default;
    I(__m512i value) : v(value) {}
    explicit I(std::uint32_t value) : v(_mm512_set1_epi32(static_cast<int>(value))) {}
};

inline F operator+(F a, F b) { return _mm512_add_ps(a.v, b.v); }
inline F operator-(F a, F b) { return _mm512_sub_ps(a.v, b.v); }
inline F operator*(F a, F b) { return _mm512_mul_ps(a.v, b.v); }
inline F operator/(F a, F b) { return _mm512_div_ps(a.v, b.v); }
inline F fma(F a, F b, F c) { return _mm512_fmadd_ps(a.v, b.v, c.v); }    // a b + c
inline F fnma(F a, F b, F c) { return _mm512_fnmadd_ps(a.v, b.v, c.v); }  // c - a b
inline F sqrt(F a) { return _mm512_sqrt_ps(a.v); }
// If either is NaN: the second. So clamping x as the second argument keeps its NaN.
inline F min(F a, F b) { return _mm512_min_ps(a.v, b.v); }
inline F max(F a, F b) { return _mm512_max_ps(a.v, b.v); }
inline F round(F a) { return _mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
inline Mask greater_equal(F a, F b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_GE_OQ); }
inline F select(Mask mask, F yes, F no) { return _mm512_mask_blend_ps(mask, no.v, yes.v); }
// The first `count` lanes (0 .. lanes).
inline Mask first_lanes(std::int64_t count) { return static_cast<Mask>((1U << count) - 1U); }

inline I operator+(I a, I b) { return _mm512_add_epi32(a.v, b.v); }
inline I operator-(I a, I b) { return _mm512_sub_epi32(a.v, b.v); }
inline I operator^(I a, I b) { return _mm512_xor_si512(a.v, b.v); }
inline I operator&(I a, I b) { return _mm512_and_si512(a.v, b.v); }
inline I operator|(I a, I b) { return _mm512_or_si512(a.v, b.v); }
template <int bits>
I shift_left(I a) {
    return _mm512_slli_epi32(a.v, bits);
}
template <int bits>
I shift_right(I a) {  // logical
    return _mm512_srli_epi32(a.v, bits);
}
inline I lane_numbers() { return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15); }
inline F to_float(I a) { return _mm512_cvtepi32_ps(a.v); }
inline I to_int(F a) { return _mm512_cvtps_epi32(a.v); }
inline F bits_to_float(I a) { return _mm512_castsi512_ps(a.v); }
inline I float_to_bits(F a) { return _mm512_castps_si512(a.v); }
inline Mask equal(I a, I b) { return _mm512_cmpeq_epi32_mask(a.v, b.v); }
inline I select(Mask mask, I yes, I no) { return _mm512_mask_blend_epi32(mask, no.v, yes.v); }
// High and low halves of the 64-bit products of 32-bit lanes.
inline void multiply_wide(I a, std::uint32_t factor, I& high, I& low) {
    const __m512i b = _mm512_set1_epi32(static_cast<int>(factor));
    const __m512i even = _mm512_mul_epu32(a.v, b);
    const __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(a.v, 32), b);
    low = _mm512_mask_blend_epi32(0xAAAA, even, _mm512_slli_epi64(odd, 32));
    high = _mm512_mask_blend_epi32(0xAAAA, _mm512_srli_epi64(even, 32), odd);
}

// p 2^n for integral n, rounded once, with subnormals and infinities.
inline F scale_by_power(F p, F n) { return _mm512_scalef_ps(p.v, n.v); }

inline F load(const float* p, Full) { return _mm512_loadu_ps(p); }
inline F load(const float* p, Part part) { return _mm512_maskz_loadu_ps(part.mask(), p); }
inline void store(float* p, F x, Full) { _mm512_storeu_ps(p, x.v); }
inline void store(float* p, F x, Part part) { _mm512_mask_storeu_ps(p, part.mask(), x.v); }

inline F widen(__m256i bits) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
inline F load(const BFloat16* p, Full) {
    return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline F load(const BFloat16* p, Part part) { return widen(_mm256_maskz_loadu_epi16(part.mask(), p)); }
// To nearest even in integers, as to_bfloat16 does: the instruction vcvtneps2bf16 flushes subnormals.
inline __m256i narrow(F x) {
    const __m512i bits = _mm512_castps_si512(x.v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd);
    const __mmask16 nan = _mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q);
    rounded = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
}
inline void store(BFloat16* p, F x, Full) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow(x)); }
inline void store(BFloat16* p, F x, Part part) { _mm256_mask_storeu_epi16(p, part.mask(), narrow(x)); }
// Past the caches, for memory that is neither read here nor soon wanted: the line needs not be fetched to be
// written. Needs p on a multiple of its 32 bytes, and fence_streams() before another thread reads.
inline void stream(BFloat16* p, F x) { _mm256_stream_si256(reinterpret_cast<__m256i*>(p), narrow(x)); }

inline F load(const Float16* p, Full) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline F load(const Float16* p, Part part) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(part.mask(), p));
}
inline __m256i narrow_half(F x) {
    return _mm512_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
inline void store(Float16* p, F x, Full) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow_half(x));
}
inline void store(Float16* p, F x, Part part) { _mm256_mask_storeu_epi16(p, part.mask(), narrow_half(x)); }

// Fixed trees, so that a sum has one value.
inline float sum(F x) {
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1));
    const __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    const __m128 pair = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
    return _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)));
}
inline float maximum(F x) {
    const __m256 half = _mm256_max_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1));
    const __m128 quarter = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    const __m128 pair = _mm_max_ps(quarter, _mm_movehl_ps(quarter, quarter));
    return _mm_cvtss_f32(_mm_max_ss(pair, _mm_movehdup_ps(pair)));
}

// Running sums of squares in double (squares of floats are exact), in 16 lanes.
struct SquareSum {
    __m512d low = _mm512_setzero_pd();
    __m512d high = _mm512_setzero_pd();
    void add(F x) {
        const __m512d a = _mm512_cvtps_pd(_mm512_castps512_ps256(x.v));
        const __m512d b = _mm512_cvtps_pd(_mm512_extractf32x8_ps(x.v, 1));
        low = _mm512_fmadd_pd(a, a, low);
        high = _mm512_fmadd_pd(b, b, high);
    }
    [[nodiscard]] double total() const {
        const __m512d all = _mm512_add_pd(low, high);
        const __m256d half = _mm256_add_pd(_mm512_castpd512_pd256(all), _mm512_extractf64x4_pd(all, 1));
        const __m128d pair = _mm_add_pd(_mm256_castpd256_pd128(half), _mm256_extractf128_pd(half, 1));
        return _mm_cvtsd_f64(_mm_add_sd(pair, _mm_unpackhi_pd(pair, pair)));
    }
};

// In place transposition of a lanes x lanes block.
inline void transpose(F (&rows)[lanes]) {
    __m512 a[16];
    for (int i = 0; i < 16; i += 2) {  // pairs of rows
        a[i] = _mm512_unpacklo_ps(rows[i].v, rows[i + 1].v);
        a[i + 1] = _mm512_unpackhi_ps(rows[i].v, rows[i + 1].v);
    }
    __m512 b[16];
    for (int i = 0; i < 16; i += 4) {  // quads of rows: b[i + c] has column c of every 4-lane group
        const __m512d a0 = _mm512_castps_pd(a[i]);
        const __m512d a1 = _mm512_castps_pd(a[i + 1]);
        const __m512d a2 = _mm512_castps_pd(a[i + 2]);
        const __m512d a3 = _mm512_castps_pd(a[i + 3]);
        b[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a0, a2));
        b[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a0, a2));
        b[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(a1, a3));
        b[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(a1, a3));
    }
    for (int c = 0; c < 4; ++c) {                                          // 128-bit groups
        const __m512 low01 = _mm512_shuffle_f32x4(b[c], b[4 + c], 0x88);   // groups 0, 2 of both
        const __m512 high01 = _mm512_shuffle_f32x4(b[c], b[4 + c], 0xDD);  // groups 1, 3
        const __m512 low23 = _mm512_shuffle_f32x4(b[8 + c], b[12 + c], 0x88);
        const __m512 high23 = _mm512_shuffle_f32x4(b[8 + c], b[12 + c], 0xDD);
        rows[c] = _mm512_shuffle_f32x4(low01, low23, 0x88);
        rows[8 + c] = _mm512_shuffle_f32x4(low01, low23, 0xDD);
        rows[4 + c] = _mm512_shuffle_f32x4(high01, high23, 0x88);
        rows[12 + c] = _mm512_shuffle_f32x4(high01, high23, 0xDD);
    }
}

// even: lanes 0, 2, ... of a then b; odd: the others.
inline void deinterleave(F a, F b, F& even, F& odd) {
    const __m512i first = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    even = _mm512_permutex2var_ps(a.v, first, b.v);
    odd = _mm512_permutex2var_ps(a.v, _mm512_add_epi32(first, _mm512_set1_epi32(1)), b.v);
}

}  // namespace trainctl::isa_v4

namespace trainctl {
namespace simd = isa_v4;
}  // namespace trainctl
