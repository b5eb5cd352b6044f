// Philox4x32-10 counter-based generator (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as
// 1, 2, 3", SC'11). Pure: the same (key, counter) gives the same 128 bits on every device and layout.
#pragma once

#include <array>
#include <cstdint>

namespace trainctl {

struct PhiloxKey {
    std::uint32_t k0 = 0;
    std::uint32_t k1 = 0;
};

using PhiloxBlock = std::array<std::uint32_t, 4>;

constexpr PhiloxBlock philox4x32(PhiloxKey key, PhiloxBlock counter) {
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t p0 = std::uint64_t{0xD2511F53U} * counter[0];
        const std::uint64_t p1 = std::uint64_t{0xCD9E8D57U} * counter[2];
        counter = {
            static_cast<std::uint32_t>(p1 >> 32U) ^ counter[1] ^ key.k0, static_cast<std::uint32_t>(p1),
            static_cast<std::uint32_t>(p0 >> 32U) ^ counter[3] ^ key.k1, static_cast<std::uint32_t>(p0)};
        key.k0 += 0x9E3779B9U;
        key.k1 += 0xBB67AE85U;
    }
    return counter;
}

// Counter block number `index` (64 bits) of stream `stream` (64 bits).
constexpr PhiloxBlock philox4x32(PhiloxKey key, std::uint64_t index, std::uint64_t stream) {
    return philox4x32(
        key, PhiloxBlock{static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32U),
                         static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32U)});
}

// Uniform in [0, 1): the top 24 bits, exactly representable in float.
constexpr float philox_uniform(std::uint32_t bits) { return static_cast<float>(bits >> 8U) * 0x1.0p-24F; }

// Two independent 32-bit keys from a user seed.
constexpr PhiloxKey philox_key(std::uint64_t seed) {
    return {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32U)};
}

}  // namespace trainctl
