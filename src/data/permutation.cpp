#include "trainctl/data/permutation.h"

#include <bit>

#include "trainctl/base/error.h"
#include "trainctl/base/hash.h"

namespace trainctl {
namespace {
// Each round mixes one half with 32 pseudo-random bits; 4 rounds suffice against an adversary, 8 leave no
// pattern in ranges of a few elements either.
constexpr std::uint32_t rounds = 8;
}  // namespace

Permutation::Permutation(std::int64_t size, const PermutationKey& key)
    : size_(static_cast<std::uint64_t>(size)),
      philox_(philox_key(key.seed ^ name_hash("data.permutation"))),
      source_(key.source),
      epoch_(key.epoch) {
    invariant(size >= 1 && size <= (std::int64_t{1} << 62), "Permutation: size must be in [1, 2^62]");
    const auto bits = static_cast<std::uint32_t>(std::bit_width(size_ - 1));
    half_bits_ = (bits + 1) / 2;
    // Below 16 elements a Feistel network has too few round functions to reach every permutation.
    if (half_bits_ < 2) half_bits_ = 2;
}

std::uint64_t Permutation::encrypt(std::uint64_t value) const {
    const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
    std::uint64_t left = value >> half_bits_;
    std::uint64_t right = value & mask;
    for (std::uint32_t round = 0; round < rounds; ++round) {
        const PhiloxBlock block =
            philox4x32(philox_, PhiloxBlock{static_cast<std::uint32_t>(right), round | (source_ << 8U),
                                            static_cast<std::uint32_t>(epoch_),
                                            static_cast<std::uint32_t>(epoch_ >> 32U)});
        const std::uint64_t next = left ^ (block[0] & mask);
        left = right;
        right = next;
    }
    return (left << half_bits_) | right;
}

std::int64_t Permutation::operator()(std::int64_t position) const {
    if (size_ == 1) return 0;
    auto value = static_cast<std::uint64_t>(position);
    // Walking the cycle from inside the range must come back into it; on average below 4 steps.
    do {
        value = encrypt(value);
    } while (value >= size_);
    return static_cast<std::int64_t>(value);
}

}  // namespace trainctl
