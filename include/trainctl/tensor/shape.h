// Up to four dimensions, 64-bit, row-major, contiguous.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "trainctl/base/error.h"

namespace trainctl {

class Shape {
  public:
    static constexpr int max_rank = 4;

    constexpr Shape() = default;  // rank 0: one element
    constexpr Shape(std::initializer_list<std::int64_t> extents) {
        invariant(extents.size() <= max_rank, "a Shape has at most four dimensions");
        for (const std::int64_t extent : extents) extents_[static_cast<std::size_t>(rank_++)] = extent;
    }

    [[nodiscard]] constexpr int rank() const { return rank_; }
    constexpr std::int64_t operator[](int dim) const { return extents_[static_cast<std::size_t>(dim)]; }
    constexpr std::int64_t& operator[](int dim) { return extents_[static_cast<std::size_t>(dim)]; }

    // Product of all extents.
    [[nodiscard]] constexpr std::int64_t elements() const {
        std::int64_t count = 1;
        for (int dim = 0; dim < rank_; ++dim) count *= (*this)[dim];
        return count;
    }

    constexpr bool operator==(const Shape& other) const = default;

  private:
    std::array<std::int64_t, max_rank> extents_{};  // unused extents stay 0 so that == is memberwise
    int rank_ = 0;
};

// "[4, 1024, 768]"
std::string to_string(const Shape& shape);

}  // namespace trainctl
