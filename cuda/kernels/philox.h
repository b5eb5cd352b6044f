// Dropout factors, the same bits as on every other device.
#pragma once

#include <cstdint>

#include "cuda/intrinsics.h"
#include "trainctl/base/philox.h"
#include "trainctl/ops/ops.h"

namespace trainctl::cuda {

// A site as kernels see it. Elements and samples as Dropout (trainctl/ops/ops.h) numbers them, samples from
// those of the micro-batch on.
struct DropoutMask {
    explicit DropoutMask(const Dropout& dropout)
        : probability(dropout.probability),
          kept_scale(1.0F / (1.0F - dropout.probability)),
          key(dropout.key),
          site(dropout.site),
          first_sample(dropout.first_sample),
          first_row(dropout.first_row) {}

    // 0 or 1 / (1 - p) for the elements `element` .. + n - 1 of a sample; element is a multiple of 4, or n
    // is 1.
    template <int n>
    __device__ void factors(std::uint64_t sample, std::int64_t element, float (&factor)[n]) const {
        static_assert(n == 1 || n % 4 == 0);
        if constexpr (n == 1) {
            factor[0] = one(words(sample, element / 4), static_cast<int>(element % 4));
        } else {
#pragma unroll
            for (int first = 0; first < n; first += 4) {
                const PhiloxBlock block = words(sample, (element + first) / 4);
#pragma unroll
                for (int i = 0; i < 4; ++i) factor[first + i] = kept(block[static_cast<std::size_t>(i)]);
            }
        }
    }
    // For elements 4 block .. 4 block + 3, and the factor of one of them.
    __device__ PhiloxBlock words(std::uint64_t sample, std::int64_t block) const {
        const std::uint64_t global = first_sample + sample;
        return philox4x32(
            key, PhiloxBlock{static_cast<std::uint32_t>(block), site, static_cast<std::uint32_t>(global),
                             static_cast<std::uint32_t>(global >> 32U)});
    }
    __device__ float one(const PhiloxBlock& block, int lane) const {
        // Selected, not indexed: registers have no index.
        const std::uint32_t low = lane == 0 ? block[0] : block[1];
        const std::uint32_t high = lane == 2 ? block[2] : block[3];
        return kept(lane < 2 ? low : high);
    }
    __device__ float kept(std::uint32_t word) const {
        return philox_uniform(word) >= probability ? kept_scale : 0.0F;
    }

    float probability;
    float kept_scale;
    PhiloxKey key;
    std::uint32_t site;
    std::uint64_t first_sample;
    std::int64_t first_row;
};

}  // namespace trainctl::cuda
