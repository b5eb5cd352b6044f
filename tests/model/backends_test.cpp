// The cpu backend against the double-precision oracle, whole models.
#include <algorithm>
#include <cmath>

#include "model/tiny_model.h"
#include "support/catch.h"
#include "support/larger.h"

namespace trainctl {
namespace {

constexpr float scale = 0.0625F;

std::vector<ModelSpec> models() {
    std::vector<ModelSpec> all = {tiny_gpt2(2, true), tiny_gpt2(5, false), tiny_llama(2, 2, true),
                                  tiny_llama(5, 3, false)};
    all[0].dropout = 0.2;
    all[3].dropout = 0.1;
    return all;
}

double largest(const std::vector<double>& values) {
    double value = 0.0;
    for (const double v : values) value = test::larger(value, std::abs(v));
    return value;
}

// max |a - b| over max(max |b|, floor); NaN anywhere gives NaN, which passes no check.
double difference(const std::vector<double>& a, const std::vector<double>& b, double floor) {
    double error = 0.0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        error = test::larger(error, std::abs(a[i] - b[i]));
    }
    return error / std::max(largest(b), floor);
}

double root_mean_square_difference(const std::vector<double>& a, const std::vector<double>& b) {
    double error = 0.0;
    double size = 0.0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        error += (a[i] - b[i]) * (a[i] - b[i]);
        size += b[i] * b[i];
    }
    return std::sqrt(error / size);
}

bool is_key_bias(const ParamSpec& param) { return param.name.find("attention.k.bias") != std::string::npos; }

// Gradients: `rounded`, the oracle over rounded tensors, is less than `limit` off the truth, and `cpu` less
// than twice as far as that and `slack`.
void check_near(const TinyModel& cpu, const TinyModel& rounded, const TinyModel& truth, double limit,
                double slack) {
    for (std::size_t i = 0; i < cpu.params().params().size(); ++i) {
        const ParamSpec& param = cpu.params().params()[i];
        INFO(param.name);
        if (is_key_bias(param)) continue;  // exact gradient 0
        const int index = static_cast<int>(i);
        const std::vector<double> exact = truth.gradient(index);
        const double necessary = root_mean_square_difference(rounded.gradient(index), exact);
        CHECK(necessary < limit);
        CHECK(root_mean_square_difference(cpu.gradient(index), exact) < 2.0 * necessary + slack);
    }
}

}  // namespace

TEST_CASE("cpu fp32 agrees with the oracle in loss and every gradient") {
    for (const ModelSpec& spec : models()) {
        for (const std::int64_t length : {19, 1}) {
            TinyModel oracle(spec, {Backend::Reference, length});
            TinyModel cpu(spec, {Backend::CpuF32, length, 5});
            cpu.scatter_weights(4);
            oracle.copy_weights(cpu);
            TinyBatch data(spec, 2, length, 21);
            for (int micro = 0; micro < 2; ++micro) {
                const double expected = oracle.train(data.micro(), scale, micro);
                CHECK(cpu.train(data.micro(), scale, micro) == Approx(expected).epsilon(2e-6));
            }
            CHECK(cpu.evaluate(data.micro()) == Approx(oracle.evaluate(data.micro())).epsilon(2e-6));
            for (std::size_t i = 0; i < cpu.params().params().size(); ++i) {
                const ParamSpec& param = cpu.params().params()[i];
                INFO(param.name << " at length " << length);
                const int index = static_cast<int>(i);
                // A key bias has the exact gradient 0, and so has every query at length 1.
                CHECK(difference(cpu.gradient(index), oracle.gradient(index), 1e-2) < 2e-5);
            }
        }
    }
}

// How far bf16 may be off depends on the model; the oracle over bf16 tensors, which rounds at the same places
// and nowhere else, tells how far it must be.
TEST_CASE("cpu bf16 is as near to the truth as bf16 tensors allow") {
    for (const ModelSpec& spec : models()) {
        TinyModel truth(spec, {});
        TinyModel rounded(spec, {Backend::ReferenceBf16});
        TinyModel cpu(spec, {Backend::CpuBf16, 19, 16});
        cpu.scatter_weights(4);
        truth.copy_weights(cpu);
        rounded.copy_weights(cpu);
        TinyBatch data(spec, 2, 19, 21);
        const double expected = truth.train(data.micro(), scale);
        rounded.train(data.micro(), scale);
        CHECK(cpu.train(data.micro(), scale) == Approx(expected).epsilon(5e-3));
        check_near(cpu, rounded, truth, 0.1, 2e-3);
    }
}

// Ten bits of significand rather than seven: an eighth of the error. The scale of the loss keeps gradients
// out of fp16's subnormals, as in training; it is exact, so the oracle may have it too.
TEST_CASE(
    "cpu fp16 is as near to the truth as fp16 tensors allow, its gradients within 2 percent of fp32's") {
    constexpr float loss_scale = 1024.0F;
    for (const ModelSpec& spec : models()) {
        TinyModel truth(spec, {});
        TinyModel rounded(spec, {Backend::ReferenceF16});
        TinyModel single(spec, {Backend::CpuF32});
        TinyModel cpu(spec, {Backend::CpuF16, 19, 16});
        cpu.scatter_weights(4);
        for (TinyModel* other : {&truth, &rounded, &single}) other->copy_weights(cpu);
        TinyBatch data(spec, 2, 19, 21);
        const double expected = truth.train(data.micro(), scale * loss_scale);
        rounded.train(data.micro(), scale * loss_scale);
        single.train(data.micro(), scale * loss_scale);
        CHECK(cpu.train(data.micro(), scale * loss_scale) == Approx(expected).epsilon(5e-3 / 8));
        check_near(cpu, rounded, truth, 0.02, 2e-3 / 8);
        for (std::size_t i = 0; i < cpu.params().params().size(); ++i) {
            const ParamSpec& param = cpu.params().params()[i];
            INFO(param.name);
            if (is_key_bias(param)) continue;  // exact gradient 0
            const int index = static_cast<int>(i);
            CHECK(root_mean_square_difference(cpu.gradient(index), single.gradient(index)) < 0.02);
        }
    }
}

TEST_CASE("cpu results do not depend on the number of threads") {
    for (const ModelSpec& spec : {tiny_gpt2(2, true), tiny_llama(2, 3, false)}) {
        for (const Backend backend : {Backend::CpuF32, Backend::CpuBf16, Backend::CpuF16}) {
            std::vector<std::vector<double>> results;
            for (const int threads : {1, 2, 3}) {
                TinyModel cpu(spec, {backend, 19, 16, threads});
                cpu.scatter_weights(4);
                TinyBatch data(spec, 2, 19, 21);
                std::vector<double> all = {cpu.train(data.micro(), scale)};
                for (std::size_t i = 0; i < cpu.params().params().size(); ++i) {
                    const std::vector<double> part = cpu.gradient(static_cast<int>(i));
                    all.insert(all.end(), part.begin(), part.end());
                }
                results.push_back(all);
            }
            CHECK(results[1] == results[0]);
            CHECK(results[2] == results[0]);
        }
    }
}

}  // namespace trainctl
