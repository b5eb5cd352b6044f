// Vectors of 8 floats (AVX2, FMA, F16C): what "simd.h" means in kernels compiled for x86-64-v3. The same
// names as isa/v4/simd.h, which has the comments.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "trainctl/tensor/dtype.h"

namespace trainctl::isa_v3 {

inline constexpr int lanes = 8;

struct Full {};
struct Part {
    std::int64_t count;  // 1 .. lanes - 1
    [[nodiscard]] __m256i mask() const {
        return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)),
                                  _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    }
};

struct F {
    __m256 v;
    F() = default;
    F(__m256 value) : v(value) {}
    explicit F(float value) : v(_mm256_set1_ps(value)) {}
};
struct Mask {
    __m256 v;
};
struct I {
    __m256i v;
    I() = default;
    I(__m256i value) : v(value) {}
    explicit I(std::uint32_t value) : v(_mm256_set1_epi32(static_cast<int>(value))) {}
};

inline F operator+(F a, F b) { return _mm256_add_ps(a.v, b.v); }
inline F operator-(F a, F b) { return _mm256_sub_ps(a.v, b.v); }
inline F operator*(F a, F b) { return _mm256_mul_ps(a.v, b.v); }
inline F operator/(F a, F b) { return _mm256_div_ps(a.v, b.v); }
inline F fma(F a, F b, F c) { return _mm256_fmadd_ps(a.v, b.v, c.v); }
inline F fnma(F a, F b, F c) { return _mm256_fnmadd_ps(a.v, b.v, c.v); }
inline F sqrt(F a) { return _mm256_sqrt_ps(a.v); }
inline F min(F a, F b) { return _mm256_min_ps(a.v, b.v); }
inline F max(F a, F b) { return _mm256_max_ps(a.v, b.v); }
inline F round(F a) { return _mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
inline Mask greater_equal(F a, F b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_GE_OQ)}; }
inline F select(Mask mask, F yes, F no) { return _mm256_blendv_ps(no.v, yes.v, mask.v); }
inline Mask first_lanes(std::int64_t count) { return {_mm256_castsi256_ps(Part{count}.mask())}; }

inline I operator+(I a, I b) { return _mm256_add_epi32(a.v, b.v); }
inline I operator-(I a, I b) { return _mm256_sub_epi32(a.v, b.v); }
inline I operator^(I a, I b) { return _mm256_xor_si256(a.v, b.v); }
inline I operator&(I a, I b) { return _mm256_and_si256(a.v, b.v); }
inline I operator|(I a, I b) { return _mm256_or_si256(a.v, b.v); }
template <int bits>
I shift_left(I a) {
    return _mm256_slli_epi32(a.v, bits);
}
template <int bits>
I shift_right(I a) {
    return _mm256_srli_epi32(a.v, bits);
}
inline I lane_numbers() { return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7); }
inline F to_float(I a) { return _mm256_cvtepi32_ps(a.v); }
inline I to_int(F a) { return _mm256_cvtps_epi32(a.v); }
inline F bits_to_float(I a) { return _mm256_castsi256_ps(a.v); }
inline I float_to_bits(F a) { return _mm256_castps_si256(a.v); }
inline Mask equal(I a, I b) { return {_mm256_castsi256_ps(_mm256_cmpeq_epi32(a.v, b.v))}; }
inline I select(Mask mask, I yes, I no) {
    return _mm256_blendv_epi8(no.v, yes.v, _mm256_castps_si256(mask.v));
}
inline void multiply_wide(I a, std::uint32_t factor, I& high, I& low) {
    const __m256i b = _mm256_set1_epi32(static_cast<int>(factor));
    const __m256i even = _mm256_mul_epu32(a.v, b);
    const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(a.v, 32), b);
    low = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
    high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
}

// In two halves, so that 2^n itself need not be representable.
inline F scale_by_power(F p, F n) {
    const __m256i whole = _mm256_cvtps_epi32(n.v);
    const __m256i half = _mm256_srai_epi32(whole, 1);
    const __m256i rest = _mm256_sub_epi32(whole, half);
    const __m256i bias = _mm256_set1_epi32(127);
    const __m256 first = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
    const __m256 second = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23));
    return _mm256_mul_ps(_mm256_mul_ps(p.v, first), second);
}

inline F load(const float* p, Full) { return _mm256_loadu_ps(p); }
inline F load(const float* p, Part part) { return _mm256_maskload_ps(p, part.mask()); }
inline void store(float* p, F x, Full) { _mm256_storeu_ps(p, x.v); }
inline void store(float* p, F x, Part part) { _mm256_maskstore_ps(p, part.mask(), x.v); }

// Fewer than 8 elements of 16 bits have no masked access: copied one by one.
template <class T>
__m128i load_part(const T* p, Part part) {
    alignas(16) T few[lanes] = {};
    for (std::int64_t i = 0; i < part.count; ++i) few[i] = p[i];
    return _mm_load_si128(reinterpret_cast<const __m128i*>(few));
}
template <class T>
void store_part(T* p, __m128i x, Part part) {
    alignas(16) T few[lanes];
    _mm_store_si128(reinterpret_cast<__m128i*>(few), x);
    for (std::int64_t i = 0; i < part.count; ++i) p[i] = few[i];
}

inline F widen(__m128i bits) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
inline F load(const BFloat16* p, Full) { return widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
inline F load(const BFloat16* p, Part part) { return widen(load_part(p, part)); }
inline __m128i narrow(F x) {
    const __m256i bits = _mm256_castps_si256(x.v);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd);
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x.v, x.v, _CMP_UNORD_Q));
    const __m256i high = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
}
inline void store(BFloat16* p, F x, Full) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrow(x)); }
inline void store(BFloat16* p, F x, Part part) { store_part(p, narrow(x), part); }
// Past the caches, for memory that is neither read here nor soon wanted: the line needs not be fetched to be
// written. Needs p on a multiple of its 16 bytes, and fence_streams() before another thread reads.
inline void stream(BFloat16* p, F x) { _mm_stream_si128(reinterpret_cast<__m128i*>(p), narrow(x)); }

inline F load(const Float16* p, Full) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline F load(const Float16* p, Part part) { return _mm256_cvtph_ps(load_part(p, part)); }
inline __m128i narrow_half(F x) {
    return _mm256_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
inline void store(Float16* p, F x, Full) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrow_half(x)); }
inline void store(Float16* p, F x, Part part) { store_part(p, narrow_half(x), part); }

inline float sum(F x) {
    const __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(x.v), _mm256_extractf128_ps(x.v, 1));
    const __m128 pair = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
    return _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)));
}
inline float maximum(F x) {
    const __m128 quarter = _mm_max_ps(_mm256_castps256_ps128(x.v), _mm256_extractf128_ps(x.v, 1));
    const __m128 pair = _mm_max_ps(quarter, _mm_movehl_ps(quarter, quarter));
    return _mm_cvtss_f32(_mm_max_ss(pair, _mm_movehdup_ps(pair)));
}

struct SquareSum {
    __m256d low = _mm256_setzero_pd();
    __m256d high = _mm256_setzero_pd();
    void add(F x) {
        const __m256d a = _mm256_cvtps_pd(_mm256_castps256_ps128(x.v));
        const __m256d b = _mm256_cvtps_pd(_mm256_extractf128_ps(x.v, 1));
        low = _mm256_fmadd_pd(a, a, low);
        high = _mm256_fmadd_pd(b, b, high);
    }
    [[nodiscard]] double total() const {
        const __m256d half = _mm256_add_pd(low, high);
        const __m128d pair = _mm_add_pd(_mm256_castpd256_pd128(half), _mm256_extractf128_pd(half, 1));
        return _mm_cvtsd_f64(_mm_add_sd(pair, _mm_unpackhi_pd(pair, pair)));
    }
};

inline void transpose(F (&rows)[lanes]) {
    __m256 b[8];
    for (int i = 0; i < 8; i += 4) {
        const __m256d a0 = _mm256_castps_pd(_mm256_unpacklo_ps(rows[i].v, rows[i + 1].v));
        const __m256d a1 = _mm256_castps_pd(_mm256_unpackhi_ps(rows[i].v, rows[i + 1].v));
        const __m256d a2 = _mm256_castps_pd(_mm256_unpacklo_ps(rows[i + 2].v, rows[i + 3].v));
        const __m256d a3 = _mm256_castps_pd(_mm256_unpackhi_ps(rows[i + 2].v, rows[i + 3].v));
        b[i] = _mm256_castpd_ps(_mm256_unpacklo_pd(a0, a2));
        b[i + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(a0, a2));
        b[i + 2] = _mm256_castpd_ps(_mm256_unpacklo_pd(a1, a3));
        b[i + 3] = _mm256_castpd_ps(_mm256_unpackhi_pd(a1, a3));
    }
    for (int c = 0; c < 4; ++c) {
        rows[c] = _mm256_permute2f128_ps(b[c], b[4 + c], 0x20);
        rows[4 + c] = _mm256_permute2f128_ps(b[c], b[4 + c], 0x31);
    }
}

inline void deinterleave(F a, F b, F& even, F& odd) {
    const __m256 e = _mm256_shuffle_ps(a.v, b.v, 0x88);  // a0 a2 b0 b2 | a4 a6 b4 b6
    const __m256 o = _mm256_shuffle_ps(a.v, b.v, 0xDD);
    even = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(e), 0xD8));
    odd = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(o), 0xD8));
}

}  // namespace trainctl::isa_v3

namespace trainctl {
namespace simd = isa_v3;
}  // namespace trainctl
