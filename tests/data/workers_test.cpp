#include <atomic>
#include <chrono>
#include <stdexcept>

#include "data/ordered_workers.h"
#include "support/catch.h"

using trainctl::data_detail::OrderedWorkers;

namespace {

struct Outcome {
    std::vector<int> used;
    std::string error;
    int most_in_flight = 0;
};

// Squares 0 .. count - 1 with uneven work; reading fails at `bad_read`, working at `bad_work` and all later
// ones.
Outcome run(std::int64_t threads, int count, int bad_read, int bad_work, int bad_use = -1) {
    Outcome outcome;
    std::atomic<int> in_flight{0}, most{0};
    int next_number = 0;
    OrderedWorkers<int, int> workers;
    try {
        workers.run(
            threads,
            [&](int& work) {
                if (next_number == bad_read) throw std::runtime_error("read " + std::to_string(next_number));
                if (next_number == count) return false;
                work = next_number++;
                most = std::max(most.load(), ++in_flight);
                return true;
            },
            [&] {
                return [&](int& work) {
                    if (work % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(300));
                    if (bad_work >= 0 && work >= bad_work)
                        throw std::runtime_error("work " + std::to_string(work));
                    return work * work;
                };
            },
            [&](int&& done) {
                --in_flight;
                if (static_cast<int>(outcome.used.size()) == bad_use) throw std::runtime_error("use");
                outcome.used.push_back(done);
            },
            [] {});
    } catch (const std::runtime_error& error) {
        outcome.error = error.what();
    }
    outcome.most_in_flight = most;
    return outcome;
}

}  // namespace

TEST_CASE("results come in order, with a bound on what is in flight, for any number of threads",
          "[threads]") {
    for (const std::int64_t threads : {1, 2, 5}) {
        for (const int count : {0, 1, 2, 100}) {
            const Outcome outcome = run(threads, count, -1, -1);
            REQUIRE(outcome.error.empty());
            REQUIRE(static_cast<int>(outcome.used.size()) == count);
            for (int i = 0; i < count; ++i) REQUIRE(outcome.used[static_cast<std::size_t>(i)] == i * i);
            REQUIRE(outcome.most_in_flight <= threads * 2 + 2);
        }
    }
}

TEST_CASE("the first failure in order is the one that is reported, after all results before it",
          "[threads]") {
    for (const std::int64_t threads : {1, 2, 5}) {
        Outcome outcome = run(threads, 100, 40, -1);
        REQUIRE(outcome.error == "read 40");
        REQUIRE(outcome.used.size() == 40);
        outcome = run(threads, 100, 40, 17);
        REQUIRE(outcome.error == "work 17");
        REQUIRE(outcome.used.size() == 17);
        outcome = run(threads, 100, 40, 17, 5);
        REQUIRE(outcome.error == "use");
        REQUIRE(run(threads, 100, 0, -1).error == "read 0");
    }
}
