#include "device/arena_plan.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "device/pages.h"

namespace trainctl {
namespace {

using Order = std::vector<std::size_t>;

bool alive_together(const ArenaSlot& a, const ArenaSlot& b) { return a.born < b.dies && b.born < a.dies; }

// Up to here both orders are tried: placing by size compares all pairs.
constexpr std::size_t most_placed_by_size = 16384;

// Whether placed slots that die before the next one is born still matter.
enum class TheDead : std::uint8_t { Matter, AreForgotten };

// Places the slots one after another, each into the tightest gap among the placed ones it lives together
// with.
std::size_t place_in_order(std::vector<ArenaSlot>& slots, const Order& order, TheDead the_dead) {
    std::size_t peak = 0;
    Order placed;  // by offset
    for (const std::size_t index : order) {
        ArenaSlot& slot = slots[index];
        if (the_dead == TheDead::AreForgotten)
            std::erase_if(placed, [&](std::size_t other) { return slots[other].dies < slot.born; });
        const std::size_t need = arena_slot_bytes(slot.bytes);
        std::size_t best = 0;
        std::size_t best_gap = SIZE_MAX;
        std::size_t free_from = 0;  // end of everything below that lives at the same time
        for (const std::size_t other_index : placed) {
            const ArenaSlot& other = slots[other_index];
            if (!alive_together(slot, other)) continue;
            if (other.offset >= free_from) {
                const std::size_t gap = other.offset - free_from;
                if (gap >= need && gap < best_gap) {
                    best = free_from;
                    best_gap = gap;
                }
            }
            free_from = std::max(free_from, other.offset + arena_slot_bytes(other.bytes));
        }
        slot.offset = best_gap == SIZE_MAX ? free_from : best;
        peak = std::max(peak, slot.offset + need);
        const auto by_offset = [&](std::size_t a, std::size_t b) {
            return slots[a].offset < slots[b].offset;
        };
        placed.insert(std::upper_bound(placed.begin(), placed.end(), index, by_offset), index);
    }
    return peak;
}

}  // namespace

std::size_t arena_slot_bytes(std::size_t bytes) {
    return round_up(std::max<std::size_t>(bytes, 1), Arena::alignment);
}

std::size_t plan_offsets(std::vector<ArenaSlot>& slots) {
    Order by_birth(slots.size());
    std::iota(by_birth.begin(), by_birth.end(), std::size_t{0});
    Order by_size = by_birth;
    std::stable_sort(by_size.begin(), by_size.end(),
                     [&](std::size_t a, std::size_t b) { return slots[a].bytes > slots[b].bytes; });

    std::vector<ArenaSlot> other = slots;
    const std::size_t peak_by_birth = place_in_order(other, by_birth, TheDead::AreForgotten);
    const std::size_t peak_by_size =
        slots.size() > most_placed_by_size ? SIZE_MAX : place_in_order(slots, by_size, TheDead::Matter);
    if (peak_by_birth < peak_by_size) slots = std::move(other);
    return std::min(peak_by_size, peak_by_birth);
}

}  // namespace trainctl
