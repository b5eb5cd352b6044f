#include "trainctl/train/progress.h"

#include "support/catch.h"
#include "trainctl/base/error.h"

using namespace trainctl;

TEST_CASE("progress survives the way through a checkpoint's counters") {
    Progress progress;
    for (int step = 0; step < 50; ++step)
        progress.advance(16, 16 * 64, step % 7 != 3 ? StepOutcome::Applied : StepOutcome::NonFinite, {});
    CHECK(progress.step == 50);
    CHECK(progress.samples == 800);
    CHECK(progress.applied_updates + progress.skipped == 50);
    CHECK(progress.recent_skips.size() == static_cast<std::size_t>(progress.skipped));
    const auto returned = [](const Progress& stored) {
        return progress_from_checkpoint(to_counters(stored), to_scalars(stored));
    };
    CHECK(returned(progress) == progress);
    CHECK(returned(Progress{}) == Progress{});
    progress.loss_scale = LossScale{1.0 / 3.0, 1234, 1};
    CHECK(returned(progress) == progress);
}

TEST_CASE("a missing counter is refused by name") {
    Progress progress;
    progress.advance(1, 1, StepOutcome::NonFinite, LossScale{1024.0, 3, 1});
    const auto complete = to_counters(progress);
    for (const auto& [name, value] : complete) {
        auto counters = complete;
        counters.erase(name);
        try {
            progress_from_checkpoint(counters, to_scalars(progress));
            FAIL("accepted without " << name);
        } catch (const Error& error) {
            CHECK(error.code() == Exit::BadInput);
            CHECK_THAT(error.what(), Catch::Matchers::Contains("'" + name + "'"));
        }
    }
    CHECK_THROWS_WITH(progress_from_checkpoint(complete, {}), Catch::Matchers::Contains("'loss_scale'"));
}

TEST_CASE("an overflow is a skip in all, but counts against no limit and ends no row") {
    Progress progress;
    progress.advance(1, 1, StepOutcome::NonFinite, {});
    progress.advance(1, 1, StepOutcome::Overflow, LossScale{512.0, 0, 1});
    CHECK(progress.skipped == 2);
    CHECK(progress.applied_updates == 0);
    CHECK(progress.consecutive_skips == 1);
    CHECK(progress.recent_skips == std::vector<std::int64_t>{1});
    CHECK(progress.loss_scale == LossScale{512.0, 0, 1});
}

TEST_CASE("skips are forgotten after a thousand steps, consecutive ones at the first update") {
    Progress progress;
    progress.advance(1, 1, StepOutcome::NonFinite, {});
    progress.advance(1, 1, StepOutcome::NonFinite, {});
    CHECK(progress.consecutive_skips == 2);
    progress.advance(1, 1, StepOutcome::Applied, {});
    CHECK(progress.consecutive_skips == 0);
    for (int step = 3; step < 1000; ++step) progress.advance(1, 1, StepOutcome::Applied, {});
    CHECK(progress.recent_skips.size() == 2);
    progress.advance(1, 1, StepOutcome::Applied, {});
    CHECK(progress.recent_skips.size() == 1);
    progress.advance(1, 1, StepOutcome::Applied, {});
    CHECK(progress.recent_skips.empty());
    CHECK(progress.skipped == 2);
}
