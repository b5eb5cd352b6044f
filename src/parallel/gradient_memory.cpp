#include "parallel/gradient_memory.h"

#include <algorithm>

namespace trainctl {
namespace {

// One group of units is written (or cast) while the one before is on its way.
constexpr int sending_turns = 2;
// A slot that was cast into an image is free again in the order of the producing stream.
constexpr int casting_turns = 1;

TensorView in_slot(const Buffer& memory, const SlotPlan& plan, std::size_t index, std::int64_t elements,
                   DType dtype) {
    return memory.view(Shape{elements}, dtype, storage_bytes(plan.first_element(index), dtype));
}

// Elements of the largest bucket that is a true sub-range of every rank's part; such a range is contiguous
// only on one rank, or when stage 0 reduces it in place on every rank.
std::int64_t largest_packed(const ShardPlan& plan) {
    const ZeroOptions& options = plan.options();
    if (plan.ranks() == 1 || (options.stage == 0 && options.reduce_dtype == DType::F32)) return 0;
    std::int64_t largest = 0;
    for (const Bucket& bucket : plan.buckets()) {
        const BucketPiece& piece = bucket.pieces.front();
        if (piece.part_elements < plan.part(plan.index(piece.unit)))
            largest = std::max(largest, piece.part_elements * plan.ranks());
    }
    return largest;
}

}  // namespace

GradientMemory::GradientMemory(const ShardPlan& plan, Device& device) : plan_(plan) {
    const DType reduce = plan.options().reduce_dtype;
    const std::int64_t kept = in_slots() ? plan.held_elements() : plan.full_elements();
    gradients_ = device.allocate(storage_bytes(kept, DType::F32), Memory::Device, "gradients");
    if (in_slots()) {
        slots_ = plan_slots(plan.units(), plan.buckets(), has_images() ? casting_turns : sending_turns,
                            first_unit(plan.units(), plan.params()));
        slot_memory_ =
            device.allocate(storage_bytes(slots_.elements, DType::F32), Memory::Device, "gradient slots");
    }
    if (has_images()) {
        images_ = plan_slots(plan.units(), plan.buckets(), sending_turns, FirstUnit::InOrder);
        image_memory_ =
            device.allocate(storage_bytes(images_.elements, reduce), Memory::Device, "gradient images");
    }
    if (const std::int64_t largest = largest_packed(plan); largest > 0)
        pack_memory_ =
            device.allocate(storage_bytes(largest, reduce), Memory::Device, "packed gradient bucket");
}

TensorView GradientMemory::full(std::size_t index) const {
    const std::int64_t elements = plan_.unit(index).padded;
    if (in_slots()) return in_slot(slot_memory_, slots_, index, elements, DType::F32);
    return gradients_.view(Shape{elements}, DType::F32, storage_bytes(plan_.full_offset(index), DType::F32));
}

TensorView GradientMemory::owned(std::size_t index) const {
    if (in_slots()) {
        return gradients_.view(Shape{plan_.part(index)}, DType::F32,
                               storage_bytes(plan_.held_offset(index), DType::F32));
    }
    const Range owned = plan_.owned(index);
    return full(index).flat(owned.begin, owned.size());
}

TensorView GradientMemory::held(std::size_t index) const {
    return plan_.options().stage == 0 ? full(index) : owned(index);
}

TensorView GradientMemory::source(std::size_t index) const {
    if (!has_images()) return full(index);
    return in_slot(image_memory_, images_, index, plan_.unit(index).padded, plan_.options().reduce_dtype);
}

TensorView GradientMemory::packed(std::int64_t elements) const {
    return pack_memory_.view(Shape{elements}, plan_.options().reduce_dtype);
}

std::vector<MemoryRow> GradientMemory::memory_table() const {
    return {{"gradients", gradients_.bytes()},
            {"gradient buckets", slot_memory_.bytes() + image_memory_.bytes() + pack_memory_.bytes()}};
}

}  // namespace trainctl
