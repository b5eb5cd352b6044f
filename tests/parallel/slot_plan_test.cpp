// Gradient slots: who shares memory with whom, and how little of it there is.
#include "parallel/slot_plan.h"

#include <algorithm>
#include <limits>
#include <random>
#include <set>

#include "parallel/random_model.h"
#include "support/catch.h"

namespace trainctl {
namespace {

constexpr std::int64_t infinite = std::numeric_limits<std::int64_t>::max();

TEST_CASE("Units in flight together never overlap, and groups take turns") {
    std::mt19937 random(5);
    for (int repeat = 0; repeat < 30; ++repeat) {
        const int ranks = 1 + repeat % 4;
        const auto units = unit_layouts(test::random_params(random, 1 + repeat % 7, 800), ranks);
        for (const std::int64_t size : {std::int64_t{1}, std::int64_t{2000}, std::int64_t{9000}, infinite}) {
            for (const LargeUnit large : {LargeUnit::Split, LargeUnit::Whole}) {
                for (const int turns : {1, 2}) {
                    for (const FirstUnit first : {FirstUnit::Early, FirstUnit::InOrder}) {
                        const auto buckets = make_buckets(units, ranks, size, large);
                        const SlotPlan plan = plan_slots(units, buckets, turns, first);
                        REQUIRE(plan.unit.size() == units.size());
                        const int groups = 1 + plan.unit.front().group;  // the first unit is the last group
                        REQUIRE(plan.unit.back().group == 0);
                        REQUIRE(static_cast<int>(plan.slot_elements.size()) <= std::min(groups, turns + 1));
                        std::vector<std::set<std::int64_t>> taken(static_cast<std::size_t>(groups));
                        for (std::size_t u = 0; u < units.size(); ++u) {
                            const SlotPlan::Place& place = plan.unit[u];
                            const auto slot = static_cast<std::size_t>(place.slot);
                            REQUIRE(place.offset + units[u].padded <= plan.slot_elements[slot]);
                            REQUIRE(plan.slot_offset[slot] + plan.slot_elements[slot] <= plan.elements);
                            for (std::size_t w = 0; w < u; ++w) {
                                const SlotPlan::Place& other = plan.unit[w];
                                if (other.group != place.group) {
                                    // Neighbours in time share a slot only if there is just one in turn.
                                    const bool neighbours = other.group == place.group + 1;
                                    if (neighbours && turns == 2) REQUIRE(other.slot != place.slot);
                                    if (first == FirstUnit::Early && other.group == groups - 1)
                                        REQUIRE(other.slot != place.slot);
                                    continue;
                                }
                                REQUIRE(other.slot == place.slot);
                                const bool apart = other.offset + units[w].padded <= place.offset ||
                                                   place.offset + units[u].padded <= other.offset;
                                REQUIRE(apart);
                            }
                        }
                    }
                }
            }
        }
    }
}

TEST_CASE("Two large ends and small blocks cost two small slots and what the ends need") {
    std::vector<UnitLayout> units;
    for (UnitId unit = 0; unit < 6; ++unit) {
        const std::int64_t elements = unit == 0 ? 128 * 50 : 128 * 8;
        units.push_back({unit, {}, elements, elements});
    }
    const auto buckets = make_buckets(units, 1, 128 * 8, LargeUnit::Whole);
    REQUIRE(buckets.size() == 6);
    REQUIRE(plan_slots(units, buckets, 2, FirstUnit::Early).elements == 128 * (50 + 8 + 8));
    REQUIRE(plan_slots(units, buckets, 2, FirstUnit::InOrder).elements == 128 * (50 + 8));
}

TEST_CASE("A head without a matrix of its own is tied") {
    ParamSpec gain;
    gain.global = gain.padded = Shape{64};
    ParamSpec table = gain;
    table.global = table.padded = Shape{97, 64};
    gain.unit = 1;
    std::vector<ParamSpec> params{table, gain};
    REQUIRE(first_unit(unit_layouts(params, 1), params) == FirstUnit::Early);
    table.unit = 1;
    params.push_back(table);
    REQUIRE(first_unit(unit_layouts(params, 1), params) == FirstUnit::InOrder);
}

TEST_CASE(
    "Neighbours never share a slot for gathered weights, nor the ends of a tied model; three slots are "
    "enough") {
    std::mt19937 random(6);
    for (int count = 1; count <= 9; ++count) {
        const auto units = unit_layouts(test::random_params(random, count, 800), 2);
        for (const FirstUnit first : {FirstUnit::Early, FirstUnit::InOrder}) {
            const SlotPlan plan = plan_gather_slots(units, first);
            REQUIRE(plan.unit.size() == units.size());
            REQUIRE(plan.slot_elements.size() <= (first == FirstUnit::Early ? 4 : 3));
            std::int64_t end = 0;
            for (std::size_t slot = 0; slot < plan.slot_elements.size(); ++slot) {
                REQUIRE(plan.slot_offset[slot] == end);
                end += plan.slot_elements[slot];
            }
            REQUIRE(plan.elements == end);
            for (std::size_t u = 0; u < units.size(); ++u) {
                REQUIRE(units[u].padded <= plan.slot_elements[static_cast<std::size_t>(plan.unit[u].slot)]);
                if (u > 0) REQUIRE(plan.unit[u].slot != plan.unit[u - 1].slot);
            }
            if (first == FirstUnit::Early && count > 1)
                REQUIRE(plan.unit.front().slot != plan.unit.back().slot);
        }
    }
}

}  // namespace
}  // namespace trainctl
