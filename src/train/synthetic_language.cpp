#include "trainctl/train/synthetic_language.h"

#include <algorithm>
#include <cmath>

#include "trainctl/base/error.h"
#include "trainctl/base/philox.h"

namespace trainctl {
namespace {

// Streams of the generator, apart from those of samples (which are numbered from 0).
constexpr std::uint64_t table_stream = ~std::uint64_t{0};

double uniform53(PhiloxKey key, std::uint64_t index, std::uint64_t stream) {
    const PhiloxBlock bits = philox4x32(key, index, stream);
    return static_cast<double>((std::uint64_t{bits[0]} << 21U) ^ (bits[1] >> 11U)) * 0x1.0p-53;
}

double row_entropy(std::span<const double> row) {
    double entropy = 0.0;
    for (const double p : row) {
        if (p > 0.0) entropy -= p * std::log(p);
    }
    return entropy;
}

std::int32_t draw(std::span<const double> cumulative, double uniform) {
    const auto at = std::upper_bound(cumulative.begin(), cumulative.end(), uniform);
    return static_cast<std::int32_t>(
        std::min<std::ptrdiff_t>(at - cumulative.begin(), std::ssize(cumulative) - 1));
}

}  // namespace

SyntheticLanguage::SyntheticLanguage(std::int64_t symbols, std::uint64_t seed)
    : symbols_(symbols),
      seed_(seed),
      table_(static_cast<std::size_t>(symbols * symbols)),
      cumulative_(table_.size()),
      stationary_(static_cast<std::size_t>(symbols), 1.0 / static_cast<double>(symbols)),
      stationary_cumulative_(stationary_.size()) {
    invariant(symbols >= 2, "a synthetic language needs at least two symbols");
    const auto n = static_cast<std::size_t>(symbols);
    const PhiloxKey key = philox_key(seed);
    // Peaked rows (exponential weights to the third power) keep the entropy well below ln(symbols), and
    // because every entry is positive the chain mixes within a few steps: looking one symbol too far back
    // loses most of the information.
    for (std::size_t i = 0; i < n; ++i) {
        double sum = 0.0;
        for (std::size_t j = 0; j < n; ++j) {
            const double exponential = -std::log1p(-uniform53(key, i * n + j, table_stream));
            table_[i * n + j] = exponential * exponential * exponential + 1e-4;
            sum += table_[i * n + j];
        }
        double running = 0.0;
        for (std::size_t j = 0; j < n; ++j) {
            table_[i * n + j] /= sum;
            running += table_[i * n + j];
            cumulative_[i * n + j] = running;
        }
        cumulative_[i * n + n - 1] = 1.0;
    }
    // Power iteration; a positive matrix contracts geometrically, so this is exact to rounding long before
    // the end.
    std::vector<double> next(n);
    for (int iteration = 0; iteration < 1000; ++iteration) {
        std::fill(next.begin(), next.end(), 0.0);
        for (std::size_t i = 0; i < n; ++i) {
            for (std::size_t j = 0; j < n; ++j) next[j] += stationary_[i] * table_[i * n + j];
        }
        std::swap(stationary_, next);
    }
    double running = 0.0;
    for (std::size_t i = 0; i < n; ++i) {
        entropy_ += stationary_[i] * row_entropy(row(static_cast<std::int64_t>(i)));
        running += stationary_[i];
        stationary_cumulative_[i] = running;
    }
    stationary_cumulative_[n - 1] = 1.0;
    unigram_entropy_ = row_entropy(stationary_);
}

std::span<const double> SyntheticLanguage::row(std::int64_t state) const {
    const auto n = static_cast<std::size_t>(symbols_);
    return std::span(table_).subspan(static_cast<std::size_t>(state) * n, n);
}

void SyntheticLanguage::sample(std::uint64_t sample, std::span<std::int32_t> tokens) const {
    const PhiloxKey key = philox_key(seed_);
    const auto n = static_cast<std::size_t>(symbols_);
    std::span<const double> cumulative(stationary_cumulative_);
    for (std::size_t t = 0; t < tokens.size(); ++t) {
        tokens[t] = draw(cumulative, uniform53(key, t, sample));
        cumulative = std::span(cumulative_).subspan(static_cast<std::size_t>(tokens[t]) * n, n);
    }
}

}  // namespace trainctl
