// Products of attention tiles in float: see kernels/tile.h. Internal to the including source (see loops.h).
#pragma once

#include <cstdint>

#include "simd.h"

namespace trainctl::cpu {
namespace {  // NOLINT

struct ProductF32 {
    using Element = float;
    static constexpr int step = 1;           // elements of the inner dimension in one 32-bit unit
    static constexpr std::int64_t rows = 4;  // rows of A and C come in multiples of it
    static constexpr std::int64_t inner_rows = simd::lanes;  // rows of T packed as inner dimension, likewise
    struct Session {};                                       // alive while a worker multiplies
    static simd::F multiply_add(const float* a, simd::F b, simd::F sum) { return fma(simd::F(*a), b, sum); }
    // One unit of every lane.
    static simd::F unit(simd::F only, simd::F /*second*/) { return only; }
    static void put(float* p, simd::F x) { store(p, x, simd::Full{}); }
};

}  // namespace
}  // namespace trainctl::cpu
