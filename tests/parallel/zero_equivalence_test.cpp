// Bitwise claims over in-process ranks: what may change how gradients travel must not change a bit.
#include <limits>
#include <random>

#include "parallel/random_model.h"
#include "parallel/zero_harness.h"
#include "support/catch.h"

namespace trainctl::test {
namespace {

std::vector<ParamSpec> small_model(unsigned seed) {
    std::mt19937 random(seed);
    std::vector<ParamSpec> params = random_params(random, 4, 700);
    // The last unit holds no matrix, as the head of a tied model.
    for (ParamSpec& param : params) {
        if (param.unit != 3 || param.global.rank() < 2) continue;
        param.global = param.padded = Shape{param.global.elements()};
    }
    return params;
}

ZeroRun basic(int ranks, int stage, int micro_batches) {
    ZeroRun run;
    run.ranks = ranks;
    run.samples = ranks * micro_batches;
    run.kind = GradientKind::Real;
    run.options.stage = stage;
    run.options.compute = DType::F32;
    return run;
}

ZeroResult checked(const std::vector<ParamSpec>& params, const ZeroRun& run) {
    ZeroResult result = run_zero(params, run);
    INFO("stage " << run.options.stage << ", ranks " << run.ranks);
    CHECK(result.defects == std::vector<std::string>{});
    CHECK(result.steady_allocations == 0);
    for (const auto& rank : result.steps) CHECK(rank == result.steps[0]);
    for (const StepResult& step : result.steps[0]) CHECK(step.apply == 1.0);
    return result;
}

void check_same(const ZeroResult& a, const ZeroResult& b) {
    CHECK(a.steps[0] == b.steps[0]);
    CHECK(a.state == b.state);
}

// MB of the reduce dtype; the last is "everything in one bucket".
const std::vector<double> bucket_mbs{1e-6, 0.0016, 0.006, 1e9};

TEST_CASE("ZeRO 0 to 3 give the same bits without accumulation", "[threads]") {
    const auto params = small_model(1);
    for (const int ranks : {1, 2, 3, 4}) {
        for (const DType reduce : {DType::F32, DType::BF16}) {
            for (const DType compute : {DType::F32, DType::BF16}) {
                ZeroRun run = basic(ranks, 0, 1);
                run.options.reduce_dtype = reduce;
                run.options.compute = compute;
                const ZeroResult zero0 = checked(params, run);
                for (const int stage : {1, 2, 3}) {
                    run.options.stage = stage;
                    check_same(zero0, checked(params, run));
                }
            }
        }
    }
}

TEST_CASE(
    "With accumulation ZeRO 0 and 1 give the same bits, so do 2 and 3, and the pairs differ by rounding",
    "[threads]") {
    const auto params = small_model(2);
    for (const int ranks : {2, 3}) {
        const ZeroResult zero0 = checked(params, basic(ranks, 0, 3));
        const ZeroResult zero1 = checked(params, basic(ranks, 1, 3));
        const ZeroResult zero2 = checked(params, basic(ranks, 2, 3));
        check_same(zero0, zero1);
        check_same(zero2, checked(params, basic(ranks, 3, 3)));
        for (std::size_t s = 0; s < zero0.steps[0].size(); ++s)
            CHECK(zero2.steps[0][s].norm == Approx(zero0.steps[0][s].norm).epsilon(1e-5));
    }
}

TEST_CASE("The bucket size and overlap change no bit, in any stage and reduce dtype", "[threads]") {
    const auto params = small_model(3);
    for (const int ranks : {1, 3}) {
        for (const int stage : {0, 1, 2, 3}) {
            for (const DType reduce : {DType::F32, DType::BF16}) {
                ZeroRun run = basic(ranks, stage, 2);
                run.options.reduce_dtype = reduce;
                const ZeroResult automatic = checked(params, run);
                int fewest = std::numeric_limits<int>::max();
                int most = 0;
                for (const double megabytes : bucket_mbs) {
                    for (const bool overlap : {true, false}) {
                        run.options.gradient_bucket_mb = megabytes;
                        run.options.overlap = overlap;
                        const ZeroResult other = checked(params, run);
                        check_same(automatic, other);
                        fewest = std::min(fewest, other.buckets);
                        most = std::max(most, other.buckets);
                    }
                }
                CHECK(fewest == 1);
                CHECK(most > 8);
            }
        }
    }
}

TEST_CASE("Sums that are exact give the same bits on any number of ranks, in every mode", "[threads]") {
    const auto params = small_model(4);  // sizes that no number of ranks divides
    ZeroRun run;
    run.samples = 12;
    run.options.stage = 0;
    run.options.compute = DType::BF16;
    const ZeroResult one = checked(params, run);
    for (const int ranks : {1, 2, 3, 4}) {
        for (const int stage : {0, 1, 2, 3}) {
            for (const DType reduce : {DType::F32, DType::BF16}) {
                for (const double megabytes : {0.0, 0.002}) {
                    run.ranks = ranks;
                    run.options.stage = stage;
                    run.options.reduce_dtype = reduce;
                    run.options.gradient_bucket_mb = megabytes;
                    check_same(one, checked(params, run));
                }
            }
        }
    }
}

TEST_CASE("Gradients written from several streams give the bits of one stream", "[threads]") {
    const auto params = small_model(5);
    for (const int stage : {0, 1, 2, 3}) {
        for (const DType reduce : {DType::F32, DType::BF16}) {
            for (const double megabytes : {0.0, 0.002}) {
                ZeroRun run = basic(2, stage, 2);
                run.options.reduce_dtype = reduce;
                run.options.gradient_bucket_mb = megabytes;
                ZeroRun several = run;
                several.producers = 3;
                ZeroResult result = run_zero(params, several);
                CHECK(result.defects == std::vector<std::string>{});
                check_same(checked(params, run), result);
            }
        }
    }
}

TEST_CASE("A model whose head is not tied shares all gradient slots", "[threads]") {
    std::mt19937 random(6);
    auto params = random_params(random, 5, 500);
    params.back().global = params.back().padded = Shape{17, 9};  // the output matrix
    params.back().group = -1;
    ZeroRun run = basic(2, 1, 2);
    run.kind = GradientKind::Whole;
    run.first = FirstUse::InOrder;
    const ZeroResult zero1 = checked(params, run);
    for (const int stage : {2, 3}) {
        run.options.stage = stage;
        for (const double megabytes : {0.0, 1e-6, 0.003, 1e9}) {
            for (const DType reduce : {DType::F32, DType::BF16}) {
                run.options.gradient_bucket_mb = megabytes;
                run.options.reduce_dtype = reduce;
                check_same(zero1, checked(params, run));
            }
        }
    }
}

}  // namespace
}  // namespace trainctl::test
