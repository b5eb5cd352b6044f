// Weights and optimizer state of one rank: buffers, and views of them by unit.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "parallel/shard_plan.h"
#include "trainctl/device/device.h"

namespace trainctl {

// Copies host elements to device memory and waits for it: for start-up only.
void upload(Device& device, Stream& stream, TensorView to, std::span<const std::byte> from);

// Which of the three states kept for every parameter.
enum class State : std::uint8_t { Master, FirstMoment, SecondMoment };
inline constexpr std::array<State, 3> all_states{State::Master, State::FirstMoment, State::SecondMoment};

// Weights in the compute dtype: whole units, gathered, in stages 0 to 2; this rank's parts in stage 3, whose
// whole units GatheredParams keeps. Master and moments hold this rank's held ranges in F32. When the compute
// dtype is F32 the weights *are* the master: this rank's held range of them is updated in place and no second
// copy exists.
class ModelMemory {
  public:
    ModelMemory(const ShardPlan& plan, Device& device, Stream& stream);

    [[nodiscard]] bool master_is_weights() const { return plan_.options().compute == DType::F32; }

    // Flat views of unit number `index`.
    [[nodiscard]] TensorView weights(std::size_t index) const;             // all of it; not in stage 3
    [[nodiscard]] TensorView owned_weights(std::size_t index) const;       // owned range
    [[nodiscard]] TensorView held_weights(std::size_t index) const;        // held range
    [[nodiscard]] TensorView state(State state, std::size_t index) const;  // held range, F32
    [[nodiscard]] TensorView held_flags(std::size_t index) const;          // U8 per block of the held range
    [[nodiscard]] TensorView bins() const;                                 // I64[norm_bins]

    [[nodiscard]] std::vector<MemoryRow> memory_table() const;

  private:
    [[nodiscard]] bool has_whole_units() const { return plan_.options().stage < 3; }
    [[nodiscard]] TensorView weights(std::size_t index, Range of_unit) const;

    const ShardPlan& plan_;
    Buffer weights_;
    Buffer master_;  // empty if master_is_weights()
    Buffer first_moment_;
    Buffer second_moment_;
    Buffer flags_;
    Buffer bins_;
};

}  // namespace trainctl
