// How much of a forward pass stays in memory for backward (memory.gradient_checkpointing).
#pragma once

#include <cstdint>

namespace trainctl {

// In ascending order of memory; what is not kept is computed again in backward, to the same bits.
enum class Keep : std::uint8_t {
    Nothing,     // no backward follows
    Input,       // "full": the sum in front of the block, [M,C]
    Products,    // "selective": results of matrix products and attention, and the sums in front of both norms
    Everything,  // "none": norms and activations as well
};

}  // namespace trainctl
