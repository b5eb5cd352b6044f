#include "parallel/gathered_params.h"

#include <fmt/format.h>

namespace trainctl {

GatheredParams::GatheredParams(const ShardPlan& plan, const ModelMemory& memory, Device& device,
                               Communicator& data, Stream& compute, Stream& communication)
    : plan_(plan),
      memory_(memory),
      data_(data),
      compute_(compute),
      communication_(communication),
      places_(plan_gather_slots(plan.units(), first_unit(plan.units(), plan.params()))),
      slot_memory_(device.allocate(storage_bytes(places_.elements, plan.options().compute), Memory::Device,
                                   "gathered units")),
      slots_(places_.slot_elements.size()),
      gathered_(device.make_event()),
      read_elsewhere_(device.make_event()),
      asked_(device.make_event()) {
    for (Slot& slot : slots_) {
        slot.filled = device.make_event();
        slot.read = device.make_event();
    }
    for (std::size_t i = 0; i < plan.units().size(); ++i) written_.push_back(device.make_event());
}

GatheredParams::Slot& GatheredParams::slot_of(std::size_t index) {
    return slots_[static_cast<std::size_t>(places_.unit[index].slot)];
}

TensorView GatheredParams::weights(std::size_t index) const {
    const DType dtype = plan_.options().compute;
    return slot_memory_.view(Shape{plan_.unit(index).padded}, dtype,
                             storage_bytes(places_.first_element(index), dtype));
}

Weights GatheredParams::acquire(UnitId unit, Stream& stream) {
    const std::size_t index = plan_.index(unit);
    Slot& slot = slot_of(index);
    if (slot.unit != index) {
        if (slot.users > 0) {
            fail(Exit::Internal,
                 fmt::format(
                     "weights of unit {} asked for while unit {} is in use in the same slot: units must be "
                     "released before the next but one is acquired",
                     unit, plan_.unit(slot.unit).unit));
        }
        // The host may be far ahead of the streams: issuing late is not starting late.
        if (!plan_.options().overlap) {
            stream.record(*asked_);
            communication_.wait(*asked_);
        }
        gather(index);
    }
    ++slot.users;
    stream.wait(*slot.filled);
    return {plan_.unit(index), plan_.params(), weights(index)};
}

void GatheredParams::hint(UnitId next) {
    const std::size_t index = plan_.index(next);
    const Slot& slot = slot_of(index);
    if (plan_.options().overlap && slot.unit != index && slot.users == 0) gather(index);
}

void GatheredParams::release(UnitId unit, Stream& stream) {
    Slot& slot = slot_of(plan_.index(unit));
    invariant(slot.users > 0, "weights released that were not acquired");
    --slot.users;
    if (&stream != &compute_) {
        stream.record(*read_elsewhere_);
        compute_.wait(*read_elsewhere_);
    }
    compute_.record(*slot.read);
}

void GatheredParams::gather(std::size_t index) {
    Slot& slot = slot_of(index);
    communication_.wait(*slot.read);
    communication_.wait(*written_[index]);
    data_.all_gather(weights(index), memory_.owned_weights(index), communication_);
    communication_.record(*slot.filled);
    communication_.record(*gathered_);
    slot.unit = index;
}

void GatheredParams::begin_update() { compute_.wait(*gathered_); }

void GatheredParams::publish(std::size_t index) {
    Slot& slot = slot_of(index);
    if (slot.unit == index) {
        invariant(slot.users == 0, "weights updated while they are in use");
        slot.unit = nobody;
    }
    compute_.record(*written_[index]);
    if (index < 2) hint(plan_.unit(index).unit);
}

std::vector<MemoryRow> GatheredParams::memory_table() const {
    return {{"gathered units", slot_memory_.bytes()}};
}

}  // namespace trainctl
