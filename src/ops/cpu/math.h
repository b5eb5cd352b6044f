// Elementary functions on vectors: one polynomial each, the same for whole vectors and row ends. Internal to
// the including source (see loops.h).
#pragma once

#include "simd.h"

namespace trainctl::cpu {
namespace {  // NOLINT

// e^x to 1 ulp or so; 0 up to e^-87 and infinity from e^89 on, NaN stays NaN. Subnormal results would cost
// the processor some hundred cycles each, so that time would depend on the data. x = n ln 2 + r, |r| <= ln 2
// / 2; Taylor to r^7 (remainder 5e-9).
inline simd::F exp(simd::F x) {
    using simd::F;
    const F least(-87.0F);
    const auto vanishes = greater_equal(least, x);  // not a NaN
    // The order of arguments keeps a NaN in x.
    x = min(F(89.0F), max(least, x));
    const F n = round(x * F(1.44269504F));
    F r = fnma(n, F(0.693145752F), x);  // ln 2, upper bits: n times it is exact
    r = fnma(n, F(1.42860677e-6F), r);  // and the rest
    F p(1.0F / 5040.0F);
    p = fma(p, r, F(1.0F / 720.0F));
    p = fma(p, r, F(1.0F / 120.0F));
    p = fma(p, r, F(1.0F / 24.0F));
    p = fma(p, r, F(1.0F / 6.0F));
    p = fma(p, r, F(0.5F));
    p = fma(p, r, F(1.0F));
    p = fma(p, r, F(1.0F));
    return select(vanishes, F(0.0F), scale_by_power(p, n));
}

// ln x for normal positive x; infinity and NaN stay.
// x = 2^e m with m in [sqrt(1/2), sqrt 2): ln m = 2 artanh((m - 1) / (m + 1)), series to the 11th power.
inline simd::F log(simd::F x) {
    using simd::F;
    using simd::I;
    const I bits = float_to_bits(x);
    const I shifted = bits + I(0x3F800000U - 0x3F3504F3U);  // so that the exponent rounds at sqrt(1/2)
    const F e = to_float(simd::shift_right<23>(shifted)) - F(127.0F);
    const F m = bits_to_float((shifted & I(0x007FFFFFU)) + I(0x3F3504F3U));
    const F s = (m - F(1.0F)) / (m + F(1.0F));
    const F s2 = s * s;
    F p(2.0F / 11.0F);
    p = fma(p, s2, F(2.0F / 9.0F));
    p = fma(p, s2, F(2.0F / 7.0F));
    p = fma(p, s2, F(2.0F / 5.0F));
    p = fma(p, s2, F(2.0F / 3.0F));
    // ln m = 2 s + s^3 p;  e ln 2 in two parts, the small one first
    const F tail = fma(e, F(1.42860677e-6F), s * s2 * p);
    const F result = fma(e, F(0.693145752F), fma(F(2.0F), s, tail));
    const F infinity = bits_to_float(I(0x7F800000U));
    return select(greater_equal(x, infinity), x, result + (x - x));
}

inline float log(float x) {
    float result = 0.0F;
    store(&result, log(simd::F(x)), simd::Part{1});
    return result;
}

inline float exp(float x) {
    float result = 0.0F;
    store(&result, exp(simd::F(x)), simd::Part{1});
    return result;
}

// 1 / x for 1 <= x < 2^120, to 1 ulp or so: a first guess from the bits (error below 1/8) and three steps of
// Newton's iteration, whose errors are its squares. Cheaper than the divider, and unlike the reciprocal
// instructions the same on every processor.
inline simd::F reciprocal(simd::F x) {
    using simd::F;
    F r = bits_to_float(simd::I(0x7EF311C7U) - float_to_bits(x));
    r = fma(r, fnma(x, r, F(1.0F)), r);
    r = fma(r, fnma(x, r, F(1.0F)), r);
    r = fma(r, fnma(x, r, F(1.0F)), r);
    return r;
}

// 1 / (1 + e^-x). Below -80 it stays at 2e-35.
inline simd::F sigmoid(simd::F x) {
    using simd::F;
    return reciprocal(F(1.0F) + exp(min(F(80.0F), F(0.0F) - x)));
}

}  // namespace
}  // namespace trainctl::cpu
