#include "parallel/resident_params.h"

namespace trainctl {

ResidentParams::ResidentParams(const ShardPlan& plan, const ModelMemory& memory, Device& device,
                               Communicator& data, Stream& compute, Stream& communication)
    : plan_(plan),
      memory_(memory),
      data_(data),
      compute_(compute),
      communication_(communication),
      read_(device.make_event()),
      computed_(device.make_event()) {
    for (std::size_t i = 0; i < plan.units().size(); ++i) filled_.push_back(device.make_event());
}

Weights ResidentParams::acquire(UnitId unit, Stream& stream) {
    const std::size_t index = plan_.index(unit);
    stream.wait(*filled_[index]);
    return {plan_.unit(index), plan_.params(), memory_.weights(index)};
}

void ResidentParams::hint(UnitId /*next*/) {}

void ResidentParams::release(UnitId /*unit*/, Stream& stream) {
    if (&stream == &compute_) return;
    stream.record(*read_);
    compute_.wait(*read_);
}

void ResidentParams::publish(std::size_t index) {
    if (plan_.options().stage == 0) {
        compute_.record(*filled_[index]);
        return;
    }
    compute_.record(*computed_);
    communication_.wait(*computed_);
    data_.all_gather(memory_.weights(index), memory_.owned_weights(index), communication_);
    communication_.record(*filled_[index]);
}

}  // namespace trainctl
