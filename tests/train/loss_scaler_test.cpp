// The rules of the loss scale alone.
#include "trainctl/train/loss_scaler.h"

#include <cmath>
#include <limits>
#include <vector>

#include "support/catch.h"

using namespace trainctl;

namespace {

PrecisionSpec fp16(double initial, std::int64_t interval, std::int64_t hysteresis, double minimum) {
    PrecisionSpec precision;
    precision.compute = DType::F16;
    precision.loss_scale = {initial, interval, hysteresis, minimum};
    return precision;
}

// The scale after each outcome: '+' applied, '!' overflow, '?' not finite.
std::vector<double> scales(const PrecisionSpec& precision, const std::string& outcomes) {
    const LossScaler scaler(precision);
    std::optional<LossScale> state = scaler.start({});
    std::vector<double> found;
    for (const char outcome : outcomes) {
        state = scaler.after(state, outcome == '+'   ? StepOutcome::Applied
                                    : outcome == '!' ? StepOutcome::Overflow
                                                     : StepOutcome::NonFinite);
        found.push_back(state->scale);
    }
    return found;
}

}  // namespace

TEST_CASE("the defaults are 2^16, doubled after 2000 updates, halved at the second overflow, never below 1") {
    PrecisionSpec precision;
    precision.compute = DType::F16;
    const std::vector<double> grown = scales(precision, std::string(4001, '+'));
    CHECK(grown[1998] == 65536.0);
    CHECK(grown[1999] == 131072.0);
    CHECK(grown[3998] == 131072.0);
    CHECK(grown[3999] == 262144.0);
    const std::vector<double> fallen = scales(precision, std::string(20, '!'));
    CHECK(fallen[0] == 65536.0);
    CHECK(fallen[1] == 32768.0);
    CHECK(fallen[16] == 1.0);
    CHECK(fallen[19] == 1.0);
}

TEST_CASE("nothing is scaled in bf16 and fp32, and only what is stored is taken up in fp16") {
    for (const DType compute : {DType::BF16, DType::F32}) {
        PrecisionSpec precision;
        precision.compute = compute;
        const LossScaler scaler(precision);
        CHECK_FALSE(scaler.start({}));
        CHECK_FALSE(scaler.start(LossScale{8.0, 3, 1}));
        CHECK_FALSE(scaler.after({}, StepOutcome::Applied));
        CHECK(scaler.judge(false, 1.0, {}) == StepOutcome::NonFinite);
    }
    const LossScaler scaler(fp16(1024.0, 5, 3, 1.0));
    CHECK(scaler.start({}) == LossScale{1024.0, 0, 3});
    CHECK(scaler.start(LossScale{8.0, 3, 1}) == LossScale{8.0, 3, 1});
}

TEST_CASE("only updates in a row let the scale grow") {
    CHECK(scales(fp16(4.0, 3, 2, 1.0), "++!++++") == std::vector<double>{4, 4, 4, 4, 4, 8, 8});
    CHECK(scales(fp16(4.0, 3, 2, 1.0), "++?++++") == std::vector<double>{4, 4, 4, 4, 4, 8, 8});
    // A shorter interval than the steps that are already counted: at the next update.
    const LossScaler shortened(fp16(4.0, 3, 2, 1.0));
    CHECK(shortened.after(LossScale{4.0, 7, 2}, StepOutcome::Applied) == LossScale{8.0, 0, 2});
}

TEST_CASE("hysteresis forgives overflows until it is used up, and growth restores it") {
    // Updates in between do not restore it; growth does.
    CHECK(scales(fp16(64.0, 3, 2, 1.0), "!+!!+++!!") ==
          std::vector<double>{64, 64, 32, 16, 16, 16, 32, 32, 16});
    CHECK(scales(fp16(64.0, 3, 1, 1.0), "!!") == std::vector<double>{32, 16});
}

TEST_CASE("the scale stops at its minimum, whatever halving would give") {
    CHECK(scales(fp16(10.0, 9, 1, 3.0), "!!") == std::vector<double>{5, 3});
}

TEST_CASE("an overflow is a gradient that a smaller scale may cure; everything else is divergence") {
    const LossScaler scaler(fp16(64.0, 3, 2, 2.0));
    const double nan = std::numeric_limits<double>::quiet_NaN();
    CHECK(scaler.judge(true, 1.0, LossScale{64.0, 0, 2}) == StepOutcome::Applied);
    CHECK(scaler.judge(false, 1.0, LossScale{64.0, 0, 2}) == StepOutcome::Overflow);
    CHECK(scaler.judge(false, 1.0, LossScale{2.5, 0, 0}) == StepOutcome::Overflow);
    CHECK(scaler.judge(false, 1.0, LossScale{2.0, 0, 0}) == StepOutcome::NonFinite);
    CHECK(scaler.judge(false, nan, LossScale{64.0, 0, 2}) == StepOutcome::NonFinite);
    CHECK(scaler.judge(false, std::numeric_limits<double>::infinity(), LossScale{64.0, 0, 2}) ==
          StepOutcome::NonFinite);
}
