#include "trainctl/observe/step_line.h"

#include <cmath>

#include "support/catch.h"

using namespace trainctl;
using Catch::Matchers::Contains;

namespace {

StepRecord example() {
    StepRecord record;
    record.step = 1200;
    record.total = 20000;
    record.loss = 3.4121;
    record.lr = 6e-4;
    record.grad_norm = 0.41;
    record.tokens_per_s = 1.23e6;
    record.model_flops_per_s = 41.2;
    record.peak_flops_per_s = 100.0;
    record.step_s = 2.0;
    record.phases.communication = 0.02;
    record.device_bytes = std::uint64_t{61} << 30U;
    return record;
}

}  // namespace

TEST_CASE("the terminal line shows everything that fits, dropped from the right") {
    const std::string wide = terminal_step_line(example(), 15120.0, 200);
    CHECK_THAT(wide, Contains("step 1200/20000  6.0%  loss 3.4121"));
    CHECK_THAT(wide, Contains("1.23M tok/s"));
    CHECK_THAT(wide, Contains("MFU 41.2%"));
    CHECK_THAT(wide, Contains("comm 1.0%"));
    CHECK_THAT(wide, Contains("eta 4h12m"));
    for (int width = 1; width <= 200; ++width) {
        const std::string line = terminal_step_line(example(), 15120.0, width);
        INFO("width " << width);
        CHECK(wide.starts_with(line));
        CHECK((static_cast<int>(line.size()) < width || line == "step 1200/20000"));
    }
}

TEST_CASE("a NaN loss is visible in both forms") {
    StepRecord record = example();
    record.loss = std::nan("");
    record.grad_norm = record.loss;
    record.skipped = 1;
    record.applied = false;
    CHECK_THAT(plain_step_line(record, -1.0), Contains("loss=nan") && Contains("gnorm=nan"));
    CHECK_THAT(plain_step_line(record, -1.0), Contains("skipped=1 applied=0 updates="));
    CHECK_THAT(terminal_step_line(record, -1.0, 300),
               Contains("loss nan") && Contains("gnorm nan") && Contains("skipped 1"));
}

TEST_CASE("the loss scale is shown where there is one") {
    StepRecord record = example();
    CHECK_THAT(plain_step_line(record, -1.0), !Contains("loss_scale"));
    CHECK_THAT(terminal_step_line(record, -1.0, 300), !Contains("scale"));
    record.loss_scale = 65536.0;
    CHECK_THAT(plain_step_line(record, -1.0), Contains(" loss_scale=65536"));
    CHECK_THAT(terminal_step_line(record, -1.0, 300), Contains("  scale 65536  "));
}

TEST_CASE("no estimate is shown before there is one") {
    CHECK_THAT(plain_step_line(example(), -1.0), !Contains("eta"));
    CHECK_THAT(plain_step_line(example(), 15120.0), Contains("eta_s=15120"));
}

TEST_CASE("a utilisation that is not known is not shown as zero") {
    StepRecord record = example();
    CHECK_THAT(plain_step_line(record, -1.0), Contains(" mfu=0.4120 "));
    record.peak_flops_per_s = 0.0;
    CHECK_THAT(plain_step_line(record, -1.0), Contains(" mfu=n/a "));
    CHECK_THAT(terminal_step_line(record, -1.0, 300), !Contains("MFU"));
}
