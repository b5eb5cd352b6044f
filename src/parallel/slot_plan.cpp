#include "parallel/slot_plan.h"

#include <algorithm>

namespace trainctl {
namespace {

using Group = std::vector<std::size_t>;  // positions of its units

std::vector<Group> groups_of(const std::vector<UnitLayout>& units, const std::vector<Bucket>& buckets) {
    std::vector<Group> groups;
    for (const Bucket& bucket : buckets) {
        if (bucket.pieces.front().part_begin > 0) continue;  // more of the unit that opened the group
        Group& group = groups.emplace_back();
        for (const BucketPiece& piece : bucket.pieces) {
            const auto at =
                std::lower_bound(units.begin(), units.end(), piece.unit,
                                 [](const UnitLayout& unit, UnitId wanted) { return unit.unit < wanted; });
            group.push_back(static_cast<std::size_t>(at - units.begin()));
        }
    }
    return groups;
}

// One slot after the other.
void place_slots(SlotPlan& plan) {
    for (const std::int64_t elements : plan.slot_elements) {
        plan.slot_offset.push_back(plan.elements);
        plan.elements += elements;
    }
}

// Groups take turns in slots, except number `alone`, which has one to itself.
constexpr std::size_t none_alone = static_cast<std::size_t>(-1);
SlotPlan assign(const std::vector<UnitLayout>& units, const std::vector<Group>& groups, int turns,
                std::size_t alone) {
    SlotPlan plan;
    plan.unit.resize(units.size());
    const std::size_t in_turn = groups.size() - (alone == none_alone ? 0 : 1);
    const std::size_t shared = std::min(static_cast<std::size_t>(turns), in_turn);
    plan.slot_elements.assign(shared + (alone == none_alone ? 0 : 1), 0);
    std::size_t turn = 0;
    for (std::size_t g = 0; g < groups.size(); ++g) {
        const std::size_t slot = g == alone ? shared : turn++ % shared;
        std::int64_t offset = 0;
        for (const std::size_t unit : groups[g]) {
            plan.unit[unit] = {static_cast<int>(slot), static_cast<int>(g), offset};
            offset += units[unit].padded;
        }
        plan.slot_elements[slot] = std::max(plan.slot_elements[slot], offset);
    }
    place_slots(plan);
    return plan;
}

}  // namespace

SlotPlan plan_slots(const std::vector<UnitLayout>& units, const std::vector<Bucket>& buckets, int turns,
                    FirstUnit first) {
    const std::vector<Group> groups = groups_of(units, buckets);
    std::size_t with_first = 0;
    while (std::find(groups[with_first].begin(), groups[with_first].end(), 0) == groups[with_first].end())
        ++with_first;
    SlotPlan alone = assign(units, groups, turns, with_first);
    if (first == FirstUnit::Early) return alone;
    SlotPlan in_turn = assign(units, groups, turns, none_alone);
    return alone.elements < in_turn.elements ? alone : in_turn;
}

SlotPlan plan_gather_slots(const std::vector<UnitLayout>& units, FirstUnit first) {
    const std::size_t last = units.size() - 1;
    const std::size_t inner = units.size() > 2 ? units.size() - 2 : 0;
    const std::size_t in_turn = std::min<std::size_t>(inner, 2);
    const bool shared = first == FirstUnit::InOrder && inner > 0;
    SlotPlan plan;
    for (std::size_t i = 0; i < units.size(); ++i) {
        std::size_t slot = in_turn;  // the first unit
        if (i > 0 && i < last) slot = i % in_turn;
        if (i > 0 && i == last && !shared) slot = in_turn + 1;
        plan.unit.push_back({static_cast<int>(slot), static_cast<int>(i), 0});
        plan.slot_elements.resize(std::max(plan.slot_elements.size(), slot + 1), 0);
        plan.slot_elements[slot] = std::max(plan.slot_elements[slot], units[i].padded);
    }
    place_slots(plan);
    return plan;
}

FirstUnit first_unit(const std::vector<UnitLayout>& units, const std::vector<ParamSpec>& params) {
    for (const ParamPlace& place : units.back().places)
        if (params[static_cast<std::size_t>(place.param)].global.rank() >= 2) return FirstUnit::InOrder;
    return FirstUnit::Early;
}

}  // namespace trainctl
