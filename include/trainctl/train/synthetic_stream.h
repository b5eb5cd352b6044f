// The synthetic language as the loader's sample stream.
#pragma once

#include "trainctl/data/sample_stream.h"
#include "trainctl/train/synthetic_language.h"

namespace trainctl {

// Endless; `language` must outlive it.
class SyntheticStream final : public SampleStream {
  public:
    SyntheticStream(const SyntheticLanguage& language, std::int64_t sequence_length)
        : language_(language), sequence_length_(sequence_length) {}
    [[nodiscard]] std::int64_t sequence_length() const override { return sequence_length_; }
    [[nodiscard]] std::optional<std::int64_t> samples() const override { return std::nullopt; }
    void read(std::int64_t sample, std::span<std::int32_t> window) const override {
        language_.sample(static_cast<std::uint64_t>(sample), window);
    }

  private:
    const SyntheticLanguage& language_;
    std::int64_t sequence_length_;
};

}  // namespace trainctl
