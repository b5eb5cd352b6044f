// How often checkpoint.interval = "auto" saves.
#include "trainctl/train/save_interval.h"

#include <cmath>

#include "support/catch.h"

using namespace trainctl;

namespace {

JournalRecord line(int attempt, const std::string& time, JournalEvent event = JournalEvent::Commit,
                   const std::string& text = "") {
    JournalRecord record;
    record.attempt = attempt;
    record.time = time;
    record.event = event;
    record.text = text;
    return record;
}

// Work lost and work spent, per second of training, if one saves at this interval.
double waste(double interval_s, double cost_s, double between_failures_s) {
    return cost_s / interval_s + interval_s / 2.0 / between_failures_s;
}

}  // namespace

TEST_CASE("the interval is the one that wastes least, within a minute and half an hour") {
    for (const double cost_s : {0.1, 1.0, 20.0}) {
        for (const double between_s : {3600.0, 1e5, 1e7}) {
            const double best = save_interval_s(cost_s, between_s);
            CHECK(best >= 60.0);
            CHECK(best <= 1800.0);
            for (const double other : {best * 1.1, best / 1.1}) {
                if (other < 60.0 || other > 1800.0) continue;
                CHECK(waste(other, cost_s, between_s) >= waste(best, cost_s, between_s));
            }
        }
    }
    CHECK(save_interval_s(0.0, 1e7) == 60.0);
    CHECK(save_interval_s(100.0, 1e7) == 1800.0);
    CHECK(save_interval_s(2.0, 1e5) == Approx(std::sqrt(4e5)));
}

TEST_CASE("more nodes and more failures make it shorter, quiet days longer") {
    const double usual = time_between_failures_s(1, {});
    CHECK(usual == Approx(150.0 * 86400.0));
    CHECK(time_between_failures_s(10, {}) == Approx(usual / 10.0));
    CHECK(time_between_failures_s(1, {3, 0.0}) == Approx(usual / 4.0));
    CHECK(time_between_failures_s(10, {0, 15.0 * 86400.0}) == Approx(2.0 * usual / 10.0));
}

TEST_CASE("the journal tells which attempts failed, and how long they took") {
    Journal journal;
    journal.records = {line(1, "2026-03-01T10:00:00Z", JournalEvent::Begin),
                       line(1, "2026-03-01T12:00:00Z"),
                       line(2, "2026-03-02T00:00:00Z"),
                       line(2, "2026-03-02T01:00:00Z", JournalEvent::Note, std::string(ended_in_order)),
                       line(3, "no time"),
                       line(4, "2026-03-03T00:00:00Z")};
    const FailureHistory history = failures_in(journal, 4);
    CHECK(history.failures == 1);
    CHECK(history.attempt_s == Approx(3.0 * 3600.0));
    CHECK(failures_in({}, 1).failures == 0);
}

TEST_CASE("a save costs what training stood still for and what the steps beside it were slower") {
    SaveCost cost;
    cost.step(9.0, true);  // nothing to compare with yet
    CHECK_FALSE(cost.seconds());
    for (int i = 0; i < 20; ++i) cost.step(1.0, false);
    cost.step(1.5, true);
    cost.step(1.25, true);
    cost.step(0.5, true);
    cost.saved(0.25);
    CHECK(*cost.seconds() == Approx(1.0));
    cost.saved(2.0);
    CHECK(*cost.seconds() == Approx(1.5));
}
