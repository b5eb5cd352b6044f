// A language whose entropy is known, so that "it learns" can be judged without data: a stationary Markov
// chain of order one over `symbols` symbols with a seeded random transition table.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace trainctl {

// Immutable after construction; thread-safe.
class SyntheticLanguage {
  public:
    SyntheticLanguage(std::int64_t symbols, std::uint64_t seed);

    [[nodiscard]] std::int64_t symbols() const { return symbols_; }
    // Expected -ln P(next | history) per token, nats: sum over states of stationary probability x row
    // entropy.
    [[nodiscard]] double entropy() const { return entropy_; }
    // Entropy of the stationary distribution, nats: the best loss that ignores the context.
    [[nodiscard]] double unigram_entropy() const { return unigram_entropy_; }

    // tokens.size() consecutive symbols of sample `sample`: a pure function of (seed, sample).
    void sample(std::uint64_t sample, std::span<std::int32_t> tokens) const;

    // P(next | state), rows of `symbols` probabilities; for tests that compute the entropy another way.
    [[nodiscard]] std::span<const double> row(std::int64_t state) const;
    [[nodiscard]] std::span<const double> stationary() const { return stationary_; }

  private:
    std::int64_t symbols_;
    std::uint64_t seed_;
    std::vector<double> table_;       // [symbols, symbols]
    std::vector<double> cumulative_;  // running sums of each row; the last entry is 1
    std::vector<double> stationary_;
    std::vector<double> stationary_cumulative_;
    double entropy_ = 0.0;
    double unigram_entropy_ = 0.0;
};

}  // namespace trainctl
