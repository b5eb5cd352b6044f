#include "trainctl/train/synthetic_language.h"

#include <cmath>
#include <vector>

#include "support/catch.h"

using namespace trainctl;

TEST_CASE("samples are a pure function of seed and number") {
    const SyntheticLanguage language(64, 7);
    const SyntheticLanguage again(64, 7);
    const SyntheticLanguage other(64, 8);
    std::vector<std::int32_t> a(65);
    std::vector<std::int32_t> b(65);
    std::vector<std::int32_t> c(65);
    language.sample(12345678901ULL, a);
    again.sample(12345678901ULL, b);
    other.sample(12345678901ULL, c);
    CHECK(a == b);
    CHECK(a != c);
    language.sample(3, b);
    CHECK(a != b);
}

TEST_CASE("the entropy is that of the transition table, and of what is drawn") {
    const std::int64_t symbols = 32;
    const SyntheticLanguage language(symbols, 11);
    // Stationary: one more step changes nothing.
    double entropy = 0.0;
    for (std::int64_t to = 0; to < symbols; ++to) {
        double mass = 0.0;
        for (std::int64_t from = 0; from < symbols; ++from) {
            mass += language.stationary()[static_cast<std::size_t>(from)] *
                    language.row(from)[static_cast<std::size_t>(to)];
        }
        CHECK(mass == Approx(language.stationary()[static_cast<std::size_t>(to)]).epsilon(1e-10));
    }
    // The true model's average surprise over drawn text tends to the entropy.
    std::vector<std::int32_t> text(2001);
    double surprise = 0.0;
    std::int64_t count = 0;
    for (std::uint64_t sample = 0; sample < 100; ++sample) {
        language.sample(sample, text);
        for (std::size_t t = 1; t < text.size(); ++t, ++count) {
            surprise -= std::log(language.row(text[t - 1])[static_cast<std::size_t>(text[t])]);
        }
    }
    entropy = surprise / static_cast<double>(count);
    CHECK(entropy == Approx(language.entropy()).margin(0.01));
    CHECK(language.entropy() < language.unigram_entropy() - 0.5);
    CHECK(language.unigram_entropy() < std::log(static_cast<double>(symbols)));
}

TEST_CASE("looking one symbol too far back loses most of what the context tells") {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
        const std::int64_t symbols = 64;
        const SyntheticLanguage language(symbols, seed);
        double two_back = 0.0;
        for (std::int64_t from = 0; from < symbols; ++from) {
            for (std::int64_t to = 0; to < symbols; ++to) {
                double p = 0.0;
                for (std::int64_t middle = 0; middle < symbols; ++middle) {
                    p += language.row(from)[static_cast<std::size_t>(middle)] *
                         language.row(middle)[static_cast<std::size_t>(to)];
                }
                two_back -= language.stationary()[static_cast<std::size_t>(from)] * p * std::log(p);
            }
        }
        INFO("seed " << seed << ": H " << language.entropy() << ", two back " << two_back << ", no context "
                     << language.unigram_entropy());
        CHECK(two_back > 0.5 * (language.unigram_entropy() + language.entropy()));
    }
}
