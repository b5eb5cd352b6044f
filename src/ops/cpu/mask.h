// Dropout factors by Philox 4x32-10, one element per lane. Internal to the including source (see loops.h).
#pragma once

#include "ops/cpu/kernels.h"
#include "simd.h"

namespace trainctl::cpu {
namespace {  // NOLINT

// Factors (0 or 1 / (1 - p)) of the elements `element` .. `element` + lanes - 1 of one sample. Every lane
// computes its own block of four words and keeps one of them: neighbours repeat work, but no alignment is
// asked for.
inline simd::F dropout_factors(const MaskArgs& mask, std::uint64_t sample, std::int64_t element) {
    using simd::F;
    using simd::I;
    // Lane numbers are added to element mod 4 so that no 32-bit sum wraps, then divided.
    const I within = simd::lane_numbers() + I(static_cast<std::uint32_t>(element & 3));
    const std::uint64_t global = mask.first_sample + sample;
    I c0 = simd::shift_right<2>(within) + I(static_cast<std::uint32_t>(element >> 2));
    I c1(mask.site);
    I c2(static_cast<std::uint32_t>(global));
    I c3(static_cast<std::uint32_t>(global >> 32U));
    std::uint32_t k0 = mask.key.k0;
    std::uint32_t k1 = mask.key.k1;
    for (int round = 0; round < 10; ++round) {
        I high0;
        I low0;
        I high1;
        I low1;
        multiply_wide(c0, 0xD2511F53U, high0, low0);
        multiply_wide(c2, 0xCD9E8D57U, high1, low1);
        c0 = high1 ^ c1 ^ I(k0);
        c1 = low1;
        c2 = high0 ^ c3 ^ I(k1);
        c3 = low0;
        k0 += 0x9E3779B9U;
        k1 += 0xBB67AE85U;
    }
    const I lane = within & I(3U);
    const I low = select(equal(lane, I(0U)), c0, c1);
    const I high = select(equal(lane, I(2U)), c2, c3);
    const I word = select(equal(lane & I(2U), I(0U)), low, high);
    const F uniform = to_float(simd::shift_right<8>(word)) * F(0x1.0p-24F);
    return select(greater_equal(uniform, F(mask.probability)), F(mask.kept_scale), F(0.0F));
}

}  // namespace
}  // namespace trainctl::cpu
