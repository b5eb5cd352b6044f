// Samples by number: the one thing the loader needs to know about data. Corpus implements it over files; a
// synthetic language can implement it over a generator.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace trainctl {

// Thread-safe: read() is called by prefetch threads while others read too.
class SampleStream {
  public:
    virtual ~SampleStream() = default;
    // T: a sample is T + 1 ids; input is the first T of them, target the last T.
    [[nodiscard]] virtual std::int64_t sequence_length() const = 0;
    // Number of samples; nullopt: endless (training passes over its sources again and again).
    [[nodiscard]] virtual std::optional<std::int64_t> samples() const = 0;
    // A pure function of `sample`. window.size() == sequence_length() + 1.
    virtual void read(std::int64_t sample, std::span<std::int32_t> window) const = 0;
};

}  // namespace trainctl
