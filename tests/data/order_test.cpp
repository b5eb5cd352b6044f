// The order of samples: permutation and schedule of sources.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "data_fixture.h"
#include "support/catch.h"
#include "trainctl/data/permutation.h"
#include "trainctl/data/source_schedule.h"

using namespace trainctl;
using namespace trainctl::test;

TEST_CASE("a permutation is a bijection of any size") {
    for (const std::int64_t size :
         {1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 31, 64, 97, 101, 255, 256, 257, 1000, 1021, 4096, 65537}) {
        for (const PermutationKey key : {PermutationKey{0, 0, 0}, PermutationKey{1234, 3, 7},
                                         PermutationKey{UINT64_MAX, 1023, UINT64_MAX}}) {
            const Permutation permutation(size, key);
            std::vector<bool> seen(static_cast<std::size_t>(size));
            for (std::int64_t i = 0; i < size; ++i) {
                const std::int64_t value = permutation(i);
                REQUIRE((value >= 0 && value < size && !seen[static_cast<std::size_t>(value)]));
                seen[static_cast<std::size_t>(value)] = true;
            }
        }
    }
}

TEST_CASE("huge permutations stay inside their range and do not collide") {
    for (const std::int64_t size :
         {(std::int64_t{1} << 33) + 1, (std::int64_t{1} << 40) - 87, std::int64_t{1} << 62}) {
        const Permutation permutation(size, {5, 0, 0});
        std::set<std::int64_t> values;
        for (std::int64_t i = 0; i < 2000; ++i) {
            const std::int64_t value = permutation(size / 2000 * i);
            REQUIRE((value >= 0 && value < size));
            values.insert(value);
        }
        REQUIRE(values.size() == 2000);
    }
}

TEST_CASE(
    "permutations differ by seed, source and epoch, and every order of few elements is about equally "
    "likely") {
    std::map<std::vector<std::int64_t>, int> orders;
    for (std::uint64_t epoch = 0; epoch < 6000; ++epoch) {
        const Permutation permutation(3, {99, 0, epoch});
        ++orders[{permutation(0), permutation(1), permutation(2)}];
    }
    REQUIRE(orders.size() == 6);
    for (const auto& [order, times] : orders) REQUIRE(std::abs(times - 1000) < 150);

    const auto order_of = [](const PermutationKey& key) {
        const Permutation permutation(1000, key);
        std::vector<std::int64_t> order;
        for (std::int64_t i = 0; i < 1000; ++i) order.push_back(permutation(i));
        return order;
    };
    REQUIRE(order_of({1, 0, 0}) == order_of({1, 0, 0}));
    REQUIRE(order_of({1, 0, 0}) != order_of({2, 0, 0}));
    REQUIRE(order_of({1, 0, 0}) != order_of({1, 1, 0}));
    REQUIRE(order_of({1, 0, 0}) != order_of({1, 0, 1}));
}

TEST_CASE("neighbours of the order are not neighbours of the data") {
    // Mean distance of two random places of n is n / 3.
    constexpr std::int64_t size = 10007;
    const Permutation permutation(size, {42, 0, 0});
    double sum = 0.0;
    for (std::int64_t i = 1; i < size; ++i)
        sum += std::abs(static_cast<double>(permutation(i) - permutation(i - 1)));
    REQUIRE(sum / static_cast<double>(size - 1) == Approx(static_cast<double>(size) / 3.0).epsilon(0.03));
}

TEST_CASE("the order of stored runs never changes") {
    const Permutation permutation(1000, {1234, 1, 2});
    std::vector<std::int64_t> first;
    for (std::int64_t i = 0; i < 8; ++i) first.push_back(permutation(i));
    REQUIRE(first == std::vector<std::int64_t>{847, 245, 973, 682, 748, 405, 547, 851});
}

namespace {
std::vector<std::vector<double>> weight_lists() {
    return {{1.0},
            {1.0, 1.0, 1.0},
            {0.7, 0.2, 0.1},
            {1.0, 1000.0},
            {1e-9, 1.0},
            {0.3333, 0.6667},
            {3.0, 1.0, 2.0, 5.0, 0.01, 7.7, 0.4},
            std::vector<double>(1024, 2.5),
            std::vector<double>(1000, 0.1)};
}
}  // namespace

TEST_CASE("weights are honoured to within one sample in any 1024 consecutive samples") {
    for (const std::vector<double>& weights : weight_lists()) {
        const SourceSchedule schedule(weights);
        double sum = 0.0;
        for (const double weight : weights) sum += weight;
        std::vector<std::int64_t> counts(weights.size());
        for (std::int64_t sample = 0; sample < 3 * 1024; ++sample) {
            ++counts[static_cast<std::size_t>(schedule.place(sample).source)];
            if (sample >= 1024) --counts[static_cast<std::size_t>(schedule.place(sample - 1024).source)];
            if (sample < 1023) continue;
            for (std::size_t s = 0; s < weights.size(); ++s) {
                const double share = weights[s] / sum * 1024.0;
                if (!(std::abs(static_cast<double>(counts[s]) - share) <= 1.0))
                    FAIL("source " << s << " at " << sample);
            }
        }
    }
}

TEST_CASE("the place of a sample in O(1) equals counting from the start") {
    for (const std::vector<double>& weights : weight_lists()) {
        const SourceSchedule schedule(weights);
        std::vector<std::int64_t> counts(weights.size(), 0);
        for (std::int64_t sample = 0; sample < 5000; ++sample) {
            const SourceSchedule::Place place = schedule.place(sample);
            if (place.index != counts[static_cast<std::size_t>(place.source)]++) FAIL("at sample " << sample);
        }
        // Far out: consistent with whole blocks.
        const std::int64_t far = (std::int64_t{1} << 50) + 77;
        const SourceSchedule::Place place = schedule.place(far * 1024 + 5);
        REQUIRE(place.source == schedule.place(5).source);
        REQUIRE(place.index == schedule.place(5).index + far * schedule.count(place.source));
    }
}

TEST_CASE("sources are spread evenly within a block") {
    const SourceSchedule schedule(std::vector<double>{3.0, 1.0});
    for (std::int64_t first = 0; first + 8 < 1024; ++first) {
        int second = 0;
        for (std::int64_t i = 0; i < 8; ++i) second += schedule.place(first + i).source;
        REQUIRE((second >= 1 && second <= 3));
    }
}

TEST_CASE("weights that cannot be honoured are refused with the numbers") {
    for (const std::vector<double>& weights : {std::vector<double>{},
                                               {0.0, 1.0},
                                               {-1.0},
                                               {std::nan(""), 1.0},
                                               {INFINITY, 1.0},
                                               std::vector<double>(1025, 1.0)}) {
        REQUIRE(thrown_by([&] { SourceSchedule{weights}; }).code == Exit::Usage);
    }
    std::vector<double> starving(40, 1e-9);
    starving.push_back(1.0);
    const Thrown thrown = thrown_by([&] { SourceSchedule{starving}; });
    REQUIRE(thrown.code == Exit::Usage);
    REQUIRE(contains(thrown.text, "1024"));
}
