// Where each recorded lifetime lies in the arena.
#pragma once

#include <cstddef>
#include <vector>

#include "trainctl/device/arena.h"

namespace trainctl {

// Sets the offsets of one pass (multiples of Arena::alignment) so that slots that live at the same time do
// not overlap; returns the bytes needed. Best fit, in order of size and in order of birth, whichever needs
// less.
std::size_t plan_offsets(std::vector<ArenaSlot>& slots);

// What a slot takes: never 0, so that two live tensors never have one address.
std::size_t arena_slot_bytes(std::size_t bytes);

}  // namespace trainctl
