#include "trainctl/train/batch_slots.h"

namespace trainctl {

BatchSlots::BatchSlots(Device& device, Stream& compute, std::int64_t micro_batch, std::int64_t length,
                       int held)
    : device_(device), compute_(compute), micro_batch_(micro_batch), length_(length) {
    const auto bytes = static_cast<std::size_t>(2 * micro_batch * length) * sizeof(std::int32_t);
    for (int index = 0; index <= held; ++index) {
        slots_.push_back({device.allocate(bytes, Memory::Pinned, "batches"),
                          device.allocate(bytes, Memory::Device, "batches"), device.make_event()});
    }
}

BatchSlots::Slot& BatchSlots::next() {
    Slot& slot = slots_[next_];
    next_ = (next_ + 1) % slots_.size();
    slot.uploaded->synchronize();
    return slot;
}

TensorView BatchSlots::host_tokens(Slot& slot) const {
    return slot.host.view(Shape{micro_batch_, length_}, DType::I32);
}

TensorView BatchSlots::host_targets(Slot& slot) const {
    return slot.host.view(Shape{micro_batch_, length_}, DType::I32, slot.host.bytes() / 2);
}

MicroBatch BatchSlots::upload(Slot& slot, std::int64_t first_sample) {
    device_.copy(compute_, slot.device.data(), slot.host.data(), slot.host.bytes());
    compute_.record(*slot.uploaded);
    MicroBatch micro;
    micro.batch = micro_batch_;
    micro.length = length_;
    micro.first_sample = static_cast<std::uint64_t>(first_sample);
    const Shape flat{micro_batch_ * length_};
    micro.tokens = slot.device.view(flat, DType::I32);
    micro.targets = slot.device.view(flat, DType::I32, slot.device.bytes() / 2);
    return micro;
}

PassKind pass_kind(std::int64_t micro, std::int64_t micros) {
    if (micros == 1) return PassKind::OnlyMicro;
    if (micro == 0) return PassKind::FirstMicro;
    return micro == micros - 1 ? PassKind::LastMicro : PassKind::InnerMicro;
}

}  // namespace trainctl
