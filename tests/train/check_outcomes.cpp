#include "train/check_outcomes.h"

#include <cmath>

#include "support/catch.h"

namespace trainctl::test {
namespace {

double norm(const std::vector<float>& tensor) {
    double sum = 0.0;
    for (const float value : tensor) sum += static_cast<double>(value) * static_cast<double>(value);
    return std::sqrt(sum);
}

// By the first moments, which are means of gradients.
void check_key_biases(const TrainOutcome& outcome) {
    for (const auto& [name, moment] : outcome.state) {
        if (!name.ends_with("k.bias.m")) continue;
        std::string query = name;
        query.replace(query.size() - 8, 1, "q");
        INFO(name);
        CHECK(norm(moment) < 1e-5 * norm(outcome.state.at(query)));
    }
}

}  // namespace

void check_same(const TrainOutcome& a, const TrainOutcome& b) {
    CHECK(a.steps == b.steps);
    CHECK(a.evaluations == b.evaluations);
    CHECK(a.state == b.state);
}

void check_rounding(const TrainOutcome& a, const TrainOutcome& b) {
    REQUIRE(a.steps.size() == b.steps.size());
    for (std::size_t index = 0; index < a.steps.size(); ++index) {
        INFO("step " << index + 1);
        CHECK(b.steps[index].loss == Approx(a.steps[index].loss).epsilon(2e-6));
        CHECK(b.steps[index].grad_norm == Approx(a.steps[index].grad_norm).epsilon(2e-6));
    }
    check_key_biases(b);
    TrainOutcome weights_a = a;
    TrainOutcome weights_b = b;
    const auto only_weights = [](TrainOutcome& outcome) {
        std::erase_if(outcome.state, [](const auto& entry) {
            return entry.first.ends_with(".m") || entry.first.ends_with(".v");
        });
    };
    only_weights(weights_a);
    only_weights(weights_b);
    CHECK(differing_tensors(weights_a, weights_b, 1e-5, {"k.bias"}) == std::vector<std::string>{});
}

void check_evaluations(const TrainOutcome& one, const TrainOutcome& other, double tolerance) {
    REQUIRE_FALSE(one.evaluations.empty());
    REQUIRE(other.evaluations.size() == one.evaluations.size());
    for (std::size_t index = 0; index < one.evaluations.size(); ++index)
        CHECK(other.evaluations[index] == Approx(one.evaluations[index]).epsilon(tolerance));
}

}  // namespace trainctl::test
