#include "parallel/model_memory.h"

#include "trainctl/ops/ops.h"

namespace trainctl {
void upload(Device& device, Stream& stream, TensorView to, std::span<const std::byte> from) {
    invariant(to.bytes() == from.size(), "upload: sizes differ");
    device.copy(stream, to.data, from.data(), from.size());
    stream.synchronize();
}

ModelMemory::ModelMemory(const ShardPlan& plan, Device& device, Stream& stream) : plan_(plan) {
    const std::size_t held = storage_bytes(plan.held_elements(), DType::F32);
    weights_ = device.allocate(storage_bytes(has_whole_units() ? plan.full_elements() : plan.held_elements(),
                                             plan.options().compute),
                               Memory::Device, "weights");
    if (!master_is_weights()) master_ = device.allocate(held, Memory::Device, "master weights");
    first_moment_ = device.allocate(held, Memory::Device, "optimizer first moment");
    second_moment_ = device.allocate(held, Memory::Device, "optimizer second moment");
    flags_ = device.allocate(static_cast<std::size_t>(plan.held_elements() / norm_block), Memory::Device,
                             "optimizer block flags");
    bins_ = device.allocate(storage_bytes(norm_bins, DType::I64), Memory::Device, "gradient norm");
    for (std::size_t i = 0; i < plan.units().size(); ++i) {
        const std::vector<std::uint8_t> unit_flags = block_flags(plan.unit(i), plan.params());
        const Range held_range = plan.held(i);
        const auto of_range = std::span(unit_flags)
                                  .subspan(static_cast<std::size_t>(held_range.begin / norm_block),
                                           static_cast<std::size_t>(held_range.size() / norm_block));
        upload(device, stream, held_flags(i), std::as_bytes(of_range));
    }
}

TensorView ModelMemory::weights(std::size_t index) const {
    invariant(has_whole_units(), "stage 3 keeps no whole units");
    return weights(index, {0, plan_.unit(index).padded});
}

TensorView ModelMemory::owned_weights(std::size_t index) const { return weights(index, plan_.owned(index)); }
TensorView ModelMemory::held_weights(std::size_t index) const { return weights(index, plan_.held(index)); }

TensorView ModelMemory::weights(std::size_t index, Range of_unit) const {
    const DType dtype = plan_.options().compute;
    const std::int64_t first = has_whole_units()
                                   ? plan_.full_offset(index) + of_unit.begin
                                   : plan_.held_offset(index) + of_unit.begin - plan_.held(index).begin;
    return weights_.view(Shape{of_unit.size()}, dtype, storage_bytes(first, dtype));
}

TensorView ModelMemory::state(State state, std::size_t index) const {
    if (state == State::Master && master_is_weights()) return held_weights(index);
    const Buffer& buffer = state == State::Master        ? master_
                           : state == State::FirstMoment ? first_moment_
                                                         : second_moment_;
    return buffer.view(Shape{plan_.held(index).size()}, DType::F32,
                       storage_bytes(plan_.held_offset(index), DType::F32));
}

TensorView ModelMemory::held_flags(std::size_t index) const {
    return flags_.view(Shape{plan_.held(index).size() / norm_block}, DType::U8,
                       static_cast<std::size_t>(plan_.held_offset(index) / norm_block));
}

TensorView ModelMemory::bins() const { return bins_.view(Shape{norm_bins}, DType::I64); }

std::vector<MemoryRow> ModelMemory::memory_table() const {
    return {{"weights", weights_.bytes()},
            {"master weights and moments", master_.bytes() + first_moment_.bytes() + second_moment_.bytes()},
            {"optimizer flags and norm", flags_.bytes() + bins_.bytes()}};
}

}  // namespace trainctl
