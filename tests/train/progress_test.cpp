#include "trainctl/train/progress.h"

#include "support/catch.h"
#include "trainctl/base/error.h"

using namespace trainctl;

TEST_CASE("progress survives the way through a checkpoint's counters") {
    Progress progress;
    for (int step = 0; step < 50; ++step) progress.advance(16, 16 * 64, step % 7 != 3);
    CHECK(progress.step == 50);
    CHECK(progress.samples == 800);
    CHECK(progress.applied_updates + progress.skipped == 50);
    CHECK(progress.recent_skips.size() == static_cast<std::size_t>(progress.skipped));
    CHECK(progress_from_counters(to_counters(progress)) == progress);
    CHECK(progress_from_counters(to_counters(Progress{})) == Progress{});
}

TEST_CASE("a missing counter is refused by name") {
    Progress progress;
    progress.advance(1, 1, false);
    const auto complete = to_counters(progress);
    for (const auto& [name, value] : complete) {
        auto counters = complete;
        counters.erase(name);
        try {
            progress_from_counters(counters);
            FAIL("accepted without " << name);
        } catch (const Error& error) {
            CHECK(error.code() == Exit::BadInput);
            CHECK_THAT(error.what(), Catch::Matchers::Contains("'" + name + "'"));
        }
    }
}

TEST_CASE("skips are forgotten after a thousand steps, consecutive ones at the first update") {
    Progress progress;
    progress.advance(1, 1, false);
    progress.advance(1, 1, false);
    CHECK(progress.consecutive_skips == 2);
    progress.advance(1, 1, true);
    CHECK(progress.consecutive_skips == 0);
    for (int step = 3; step < 1000; ++step) progress.advance(1, 1, true);
    CHECK(progress.recent_skips.size() == 2);
    progress.advance(1, 1, true);
    CHECK(progress.recent_skips.size() == 1);
    progress.advance(1, 1, true);
    CHECK(progress.recent_skips.empty());
    CHECK(progress.skipped == 2);
}
