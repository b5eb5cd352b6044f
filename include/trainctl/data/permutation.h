// A pseudo-random permutation of [0, size) that stores nothing: a Feistel network over Philox on the next
// even power of two, walked along its cycle until it falls inside the range. Any position costs the same,
// O(1) memory.
#pragma once

#include <cstdint>

#include "trainctl/base/philox.h"

namespace trainctl {

// Which of the independent permutations of one size.
struct PermutationKey {
    std::uint64_t seed = 0;
    std::uint32_t source = 0;
    std::uint64_t epoch = 0;
};

class Permutation {
  public:
    // size >= 1, at most 2^62.
    Permutation(std::int64_t size, const PermutationKey& key);

    // Bijective on [0, size). Pure; the values are part of the data order of stored runs: never change them.
    [[nodiscard]] std::int64_t operator()(std::int64_t position) const;

  private:
    [[nodiscard]] std::uint64_t encrypt(std::uint64_t value) const;

    std::uint64_t size_;
    PhiloxKey philox_;
    std::uint32_t source_;
    std::uint64_t epoch_;
    std::uint32_t half_bits_;
};

}  // namespace trainctl
