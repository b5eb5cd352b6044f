// What an update computes, against an independent one; skipped updates; state by name; errors.
#include <cmath>
#include <random>

#include "parallel/random_model.h"
#include "parallel/zero_harness.h"
#include "support/catch.h"
#include "support/larger.h"

namespace trainctl::test {
namespace {

std::vector<ParamSpec> model(unsigned seed) {
    std::mt19937 random(seed);
    auto params = random_params(random, 3, 600);
    for (ParamSpec& param : params)
        if (param.unit == 2) param.global = param.padded = Shape{param.global.elements()};
    return params;
}

// AdamW in double over whole tensors, one gradient at a time: no units, no ranks, no buckets.
struct PlainAdamw {
    std::map<std::string, std::vector<double>> master, m, v;
    std::vector<double> norms;

    PlainAdamw(const std::vector<ParamSpec>& params, std::uint64_t seed) {
        for (const ParamSpec& param : params) {
            std::vector<float> values(static_cast<std::size_t>(param.global.elements()));
            initial_values(param, seed, 0, values);
            master[param.name].assign(values.begin(), values.end());
            m[param.name].resize(values.size());
            v[param.name].resize(values.size());
        }
    }
    void step(const std::vector<ParamSpec>& params, const ZeroRun& run, int step) {
        const SyntheticGradient gradient{static_cast<std::uint64_t>(run.first_step + step), run.kind};
        std::map<std::string, std::vector<double>> sums;
        double squares = 0.0;
        for (const ParamSpec& param : params) {
            auto& sum = sums[param.name];
            sum.resize(static_cast<std::size_t>(param.global.elements()));
            for (std::size_t e = 0; e < sum.size(); ++e) {
                for (int sample = 0; sample < run.samples; ++sample)
                    sum[e] += static_cast<double>(gradient.at(param, static_cast<std::int64_t>(e), sample));
                squares += sum[e] * sum[e];
            }
        }
        const double norm = std::sqrt(squares);
        norms.push_back(norm);
        const double clip = std::min(1.0, run.max_norm / (norm + 1e-6));
        for (const ParamSpec& param : params) {
            for (std::size_t e = 0; e < sums[param.name].size(); ++e) {
                const double g = sums[param.name][e] * clip;
                double& first = m[param.name][e];
                double& second = v[param.name][e];
                double& value = master[param.name][e];
                first = 0.9 * first + 0.1 * g;
                second = 0.95 * second + 0.05 * g * g;
                const double unbiased = first / (1.0 - std::pow(0.9, step + 1));
                const double scale = std::sqrt(second / (1.0 - std::pow(0.95, step + 1))) + 1e-8;
                value -= 0.01 * (unbiased / scale + (param.decay ? 0.1 * value : 0.0));
            }
        }
    }
};

double largest_difference(const std::vector<float>& a, const std::vector<double>& b) {
    double largest = a.size() == b.size() ? 0.0 : 1e30;
    for (std::size_t e = 0; e < a.size() && e < b.size(); ++e)
        largest = larger(largest, std::abs(static_cast<double>(a[e]) - b[e]));
    return largest;
}

TEST_CASE("All micro-batches of all ranks count, as in a plain AdamW over whole tensors", "[threads]") {
    const auto params = model(1);
    for (const int stage : {0, 1, 2, 3}) {
        for (const double max_norm : {1.0, 1e9}) {
            ZeroRun run;
            run.ranks = 2;
            run.samples = 8;  // four micro-batches per rank
            run.steps = 3;
            run.max_norm = max_norm;
            run.options.stage = stage;
            const ZeroResult result = run_zero(params, run);
            CHECK(result.defects == std::vector<std::string>{});
            PlainAdamw plain(params, run.seed);
            for (int step = 0; step < run.steps; ++step) plain.step(params, run, step);
            for (std::size_t step = 0; step < 3; ++step) {
                const StepResult& found = result.steps[1][step];
                CHECK(found.norm == Approx(plain.norms[step]).epsilon(1e-12));
                CHECK(found.clip == Approx(std::min(1.0, max_norm / (plain.norms[step] + 1e-6))));
                CHECK(found.loss_sum == 36.0);  // 1 + ... + 8
            }
            for (const ParamSpec& param : params) {
                CHECK(largest_difference(result.state.at(param.name), plain.master[param.name]) < 2e-6);
                const double scale = max_norm > 1.0 ? 100.0 : 1.0;
                CHECK(largest_difference(result.state.at(param.name + ".m"), plain.m[param.name]) <
                      1e-6 * scale);
                CHECK(largest_difference(result.state.at(param.name + ".v"), plain.v[param.name]) <
                      1e-6 * scale * scale);
            }
        }
    }
}

TEST_CASE("A non-finite gradient or loss on one rank skips the update on all, and leaves no trace",
          "[threads]") {
    const auto params = model(2);
    for (const int stage : {0, 1, 2, 3}) {
        for (const Fault::Where where : {Fault::Where::Gradient, Fault::Where::Loss}) {
            for (const int rank : {0, 2}) {
                ZeroRun run;
                run.ranks = 3;
                run.samples = 6;
                run.steps = 2;
                run.first_step = 1;
                run.options.stage = stage;
                const ZeroResult healthy = run_zero(params, run);  // steps 1, 2
                run.steps = 1;
                run.first_step = 0;
                run.fault = {rank, 0, where};
                ZeroResult faulty = run_zero(params, run);
                for (const auto& steps : faulty.steps) CHECK(steps[0].apply == 0.0);
                run.fault.rank = -1;
                run.steps = 0;
                const ZeroResult untouched = run_zero(params, run);
                CHECK(faulty.state == untouched.state);
                CHECK(faulty.defects == std::vector<std::string>{});
                // The faulty step, then steps 1 and 2: as if the faulty one had not been.
                run.steps = 3;
                run.fault = {rank, 0, where};
                faulty = run_zero(params, run);
                CHECK(faulty.state == healthy.state);
                CHECK(faulty.steps[1][0].apply == 0.0);
                CHECK(faulty.steps[1][1] == healthy.steps[1][0]);
                CHECK(faulty.steps[1][2] == healthy.steps[1][1]);
            }
        }
    }
}

TEST_CASE("State saved at one layout continues at any other, bit by bit", "[threads]") {
    const auto params = model(3);
    ZeroRun run;
    run.samples = 12;
    run.steps = 4;
    run.options.stage = 0;
    const ZeroResult straight = run_zero(params, run);
    struct Layout {
        int ranks;
        int stage;
        DType compute;
    };
    const Layout layouts[] = {{1, 0, DType::BF16}, {2, 0, DType::BF16}, {3, 2, DType::BF16},
                              {4, 1, DType::F16},  {3, 1, DType::F32},  {2, 3, DType::F16}};
    for (const Layout& from : layouts) {
        for (const Layout& to : layouts) {
            const auto at = [&](const Layout& layout, int first_step) {
                ZeroRun part = run;
                part.ranks = layout.ranks;
                part.options.stage = layout.stage;
                part.options.compute = layout.compute;
                part.steps = 2;
                part.first_step = first_step;
                return part;
            };
            const ZeroResult first = run_zero(params, at(from, 0));
            ZeroRun second = at(to, 2);
            second.load = &first.state;
            second.updates_before = 2;
            const ZeroResult resumed = run_zero(params, second);
            CHECK(resumed.defects == std::vector<std::string>{});
            CHECK(resumed.state == straight.state);
        }
    }
}

TEST_CASE("Initial values do not depend on the layout", "[threads]") {
    const auto params = model(4);
    ZeroRun run;
    run.steps = 0;
    run.samples = 12;
    NamedTensors expected;
    for (const ParamSpec& param : params) {
        auto& values = expected[param.name];
        values.resize(static_cast<std::size_t>(param.global.elements()));
        initial_values(param, run.seed, 0, values);
        expected[param.name + ".m"].resize(values.size());
        expected[param.name + ".v"].resize(values.size());
    }
    for (const int ranks : {1, 2, 3, 4}) {
        for (const int stage : {0, 1, 2, 3}) {
            run.ranks = ranks;
            run.options.stage = stage;
            const ZeroResult result = run_zero(params, run);
            CHECK(result.state == expected);
            CHECK(result.defects == std::vector<std::string>{});
        }
    }
}

}  // namespace
}  // namespace trainctl::test
