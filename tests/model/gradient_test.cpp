// Whole models in double: gradients against central finite differences of the loss.
#include <algorithm>
#include <cmath>

#include "model/tiny_model.h"
#include "support/catch.h"
#include "support/larger.h"
#include "support/reference/elements.h"
#include "trainctl/base/hash.h"
#include "trainctl/base/philox.h"

namespace trainctl {
namespace {

constexpr float scale = 0.0625F;  // exact, so that nothing but the model is tested

// Loss with the weights of `param` moved by step x direction.
double moved_loss(TinyModel& model, const MicroBatch& micro, int param, const std::vector<double>& direction,
                  double step, bool dropout) {
    const TensorView weight = model.params().weight(param);
    const std::vector<double> before = values_of(weight);
    for (std::size_t e = 0; e < direction.size(); ++e) {
        set_element(weight, static_cast<std::int64_t>(e), before[e] + step * direction[e]);
    }
    // Dropout draws the same masks at every call, but only training has them.
    const double loss = dropout ? model.train(micro, scale) : model.evaluate(micro);
    for (std::size_t e = 0; e < before.size(); ++e) {
        set_element(weight, static_cast<std::int64_t>(e), before[e]);
    }
    return loss * static_cast<double>(scale);
}

void check_derivative(TinyModel& model, const MicroBatch& micro, int param,
                      const std::vector<double>& direction, const std::vector<double>& gradient,
                      bool dropout) {
    constexpr double step = 1e-5;
    const double up = moved_loss(model, micro, param, direction, step, dropout);
    const double down = moved_loss(model, micro, param, direction, -step, dropout);
    double expected = 0.0;
    for (std::size_t e = 0; e < direction.size(); ++e) expected += direction[e] * gradient[e];
    INFO("finite difference " << (up - down) / (2.0 * step) << ", gradient " << expected);
    CHECK(std::abs((up - down) / (2.0 * step) - expected) < 2e-6 * std::abs(expected) + 1e-8);
}

// Every tensor along a random direction, which sees all its elements at once, and along its steepest element.
void check_gradients(const ModelSpec& spec, std::int64_t batch, std::int64_t length,
                     std::int64_t chunk_rows = 0) {
    TinyModel model(spec, {Backend::Reference, length, chunk_rows});
    model.scatter_weights(4);
    TinyBatch data(spec, batch, length, 21);
    const MicroBatch micro = data.micro();
    const bool dropout = spec.dropout > 0.0;
    model.train(micro, scale);
    std::vector<std::vector<double>> gradients;
    const auto count = static_cast<int>(model.params().params().size());
    for (int param = 0; param < count; ++param) gradients.push_back(model.gradient(param));

    for (int param = 0; param < count; ++param) {
        const ParamSpec& named = model.params().params()[static_cast<std::size_t>(param)];
        const std::vector<double>& gradient = gradients[static_cast<std::size_t>(param)];
        INFO(named.name);
        const auto logical = static_cast<std::size_t>(named.global.elements());
        for (std::size_t e = logical; e < gradient.size(); ++e) REQUIRE(gradient[e] == 0.0);
        std::vector<double> direction(gradient.size(), 0.0);
        for (std::size_t e = 0; e < logical; ++e) {
            const PhiloxBlock words = philox4x32(philox_key(6), e, name_hash(named.name));
            direction[e] = 2.0 * static_cast<double>(philox_uniform(words[0])) - 1.0;
        }
        check_derivative(model, micro, param, direction, gradient, dropout);
        const auto steepest = std::max_element(gradient.begin(), gradient.end(),
                                               [](double a, double b) { return std::abs(a) < std::abs(b); });
        std::fill(direction.begin(), direction.end(), 0.0);
        direction[static_cast<std::size_t>(steepest - gradient.begin())] = 1.0;
        check_derivative(model, micro, param, direction, gradient, dropout);
    }
}

ModelSpec with_dropout(ModelSpec model, double probability) {
    model.dropout = probability;
    return model;
}

}  // namespace

TEST_CASE("gpt2 gradients, tied", "[gradient]") { check_gradients(tiny_gpt2(2, true), 2, 19); }
TEST_CASE("gpt2 gradients, untied, dropout, chunked head", "[gradient]") {
    check_gradients(with_dropout(tiny_gpt2(2, false), 0.25), 2, 5, 3);
}
TEST_CASE("llama gradients, five layers, grouped queries, tied", "[gradient]") {
    check_gradients(tiny_llama(5, 2, true), 1, 11, 4);
}
TEST_CASE("llama gradients, untied, one key/value head, dropout", "[gradient]") {
    check_gradients(with_dropout(tiny_llama(2, 1, false), 0.1), 1, 7);
}
TEST_CASE("llama gradients where heads x head_dim is not the hidden size", "[gradient]") {
    ModelSpec model = tiny_llama(1, 3, false);
    model.head_dim = 2;
    check_gradients(model, 1, 6);
}

TEST_CASE("the gradient of GPT-2's key bias is zero", "[gradient]") {
    const ModelSpec spec = tiny_gpt2(2, true);
    TinyModel model(spec, {});
    model.scatter_weights(4);
    TinyBatch data(spec, 2, 19, 21);
    model.train(data.micro(), scale);
    const auto largest = [&](const char* name) {
        double value = 0.0;
        for (const double g : model.gradient(model.params().index(name)))
            value = test::larger(value, std::abs(g));
        return value;
    };
    CHECK(largest("blocks.1.attention.q.bias") > 1e-4);
    CHECK(largest("blocks.1.attention.k.bias") < 1e-12 * largest("blocks.1.attention.q.bias"));
}

}  // namespace trainctl
