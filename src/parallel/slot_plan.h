// Memory that units share in turn: gradients between a unit's backward and its reduce-scatter, weights
// between their gather and their last reader. Pure data.
#pragma once

#include <cstdint>
#include <vector>

#include "trainctl/parallel/shard_map.h"

namespace trainctl {

// Units that travel together (a bucket of whole units, or one split unit) form a group and lie side by side
// in one slot; groups take turns in the slots.
struct SlotPlan {
    struct Place {
        int slot = 0;
        int group = 0;
        std::int64_t offset = 0;  // elements from the start of the slot
    };
    std::vector<Place> unit;                  // by position of the unit
    std::vector<std::int64_t> slot_elements;  // size of each slot
    std::vector<std::int64_t> slot_offset;    // where each starts in one buffer
    std::int64_t elements = 0;                // of that buffer

    // Where unit number `index` starts in that buffer.
    [[nodiscard]] std::int64_t first_element(std::size_t index) const {
        return slot_offset[static_cast<std::size_t>(unit[index].slot)] + unit[index].offset;
    }
};

// Early: the first unit (the embedding, last in backward order) may be asked for before the others are ready,
// as a tied head does; its group then has a slot to itself. InOrder: whichever needs less memory.
enum class FirstUnit : std::uint8_t { Early, InOrder };

// `turns`: slots that groups share in turn; 2 lets one group be written while the one before is reduced.
SlotPlan plan_slots(const std::vector<UnitLayout>& units, const std::vector<Bucket>& buckets, int turns,
                    FirstUnit first);

// Slots for gathered weights, where a unit is a group of its own: two that the inner units take in turn, so
// that the next one (in either direction) can be gathered while one is read, and one that the first and the
// last unit share. A tied head reads both at once: then each has its own.
SlotPlan plan_gather_slots(const std::vector<UnitLayout>& units, FirstUnit first);

// Tied iff the last unit (final norm, output matrix) has no matrix of its own.
FirstUnit first_unit(const std::vector<UnitLayout>& units, const std::vector<ParamSpec>& params);

}  // namespace trainctl
