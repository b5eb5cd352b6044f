// Which source each sample comes from: a fixed pattern of 1024 slots, repeated. Any 1024 consecutive samples
// hold exactly counts[s] of source s, which is within one of weight[s] / sum * 1024.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace trainctl {

class SourceSchedule {
  public:
    static constexpr std::int64_t slots = 1024;

    // Weights are relative. Not positive or not finite, none, or more small sources than slots can honour is
    // Exit::Usage with the numbers.
    explicit SourceSchedule(std::span<const double> weights);

    struct Place {
        std::int32_t source = 0;
        std::int64_t index = 0;  // how many earlier samples came from this source
    };
    // O(1). Precondition: sample >= 0.
    [[nodiscard]] Place place(std::int64_t sample) const {
        const auto slot = static_cast<std::size_t>(sample % slots);
        const std::int32_t source = source_[slot];
        return {source, sample / slots * counts_[static_cast<std::size_t>(source)] + before_[slot]};
    }
    // Samples of `source` per 1024.
    [[nodiscard]] std::int64_t count(std::int32_t source) const {
        return counts_[static_cast<std::size_t>(source)];
    }
    [[nodiscard]] std::int32_t sources() const { return static_cast<std::int32_t>(counts_.size()); }

  private:
    std::vector<std::int64_t> counts_;
    std::array<std::int32_t, slots> source_{};
    std::array<std::int32_t, slots> before_{};  // slots of the same source in front of this one
};

}  // namespace trainctl
