// Gradients of one rank: where layers write them, where the reduced part lies, and what travels.
//
//   stage  layers write to        reduced part
//   0      full buffer            in place, then the whole unit on every rank
//   1      full buffer            in place: this rank's owned range of it
//   2, 3   slots shared in turn   a buffer of owned parts
//
// With a BF16 reduce dtype the unit is cast into an image slot and that is sent. A sub-range of every rank's
// part is not contiguous; it is packed before it is sent. Whole units are sent from where they lie, without a
// copy.
#pragma once

#include <vector>

#include "parallel/shard_plan.h"
#include "parallel/slot_plan.h"
#include "trainctl/device/device.h"

namespace trainctl {

class GradientMemory {
  public:
    GradientMemory(const ShardPlan& plan, Device& device);

    // Flat views of unit number `index`.
    [[nodiscard]] TensorView full(std::size_t index) const;    // F32, whole unit: what layers write
    [[nodiscard]] TensorView owned(std::size_t index) const;   // F32, this rank's reduced part
    [[nodiscard]] TensorView held(std::size_t index) const;    // F32, what the update reads
    [[nodiscard]] TensorView source(std::size_t index) const;  // reduce dtype, whole unit: what is sent
    // Room for `elements` of the reduce dtype; used on the communication stream only, so in order.
    [[nodiscard]] TensorView packed(std::int64_t elements) const;

    [[nodiscard]] bool in_slots() const { return plan_.options().stage >= 2; }
    [[nodiscard]] bool has_images() const { return plan_.options().reduce_dtype != DType::F32; }
    [[nodiscard]] const SlotPlan& slots() const { return slots_; }    // if in_slots()
    [[nodiscard]] const SlotPlan& images() const { return images_; }  // if has_images()

    [[nodiscard]] std::vector<MemoryRow> memory_table() const;

  private:
    const ShardPlan& plan_;
    SlotPlan slots_;
    SlotPlan images_;
    Buffer gradients_;  // full (stages 0, 1) or owned parts (stages 2, 3)
    Buffer slot_memory_;
    Buffer image_memory_;
    Buffer pack_memory_;
};

}  // namespace trainctl
