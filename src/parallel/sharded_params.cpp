#include "parallel/sharded_params.h"

namespace trainctl {

ShardedParams::ShardedParams(const ShardPlan& plan, const ModelMemory& memory, Device& device,
                             Stream& compute)
    : plan_(plan), memory_(memory), compute_(compute), read_(device.make_event()) {
    for (std::size_t i = 0; i < plan.units().size(); ++i) filled_.push_back(device.make_event());
}

Weights ShardedParams::acquire(UnitId unit, Stream& stream) {
    const std::size_t index = plan_.index(unit);
    stream.wait(*filled_[index]);
    return {plan_.unit(index), plan_.params(), memory_.weights(index)};
}

void ShardedParams::hint(UnitId /*next*/) {}

void ShardedParams::release(UnitId /*unit*/, Stream& stream) {
    if (&stream == &compute_) return;
    stream.record(*read_);
    compute_.wait(*read_);
}

}  // namespace trainctl
