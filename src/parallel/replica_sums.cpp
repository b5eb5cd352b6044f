#include "parallel/replica_sums.h"

#include <algorithm>

namespace trainctl {

ReplicaSums::ReplicaSums(const ShardPlan& plan, const GradientMemory& gradients, Device& device, Ops ops,
                         Communicator* tensor, Stream& compute, Stream& communication)
    : gradients_(gradients),
      device_(device),
      ops_(ops),
      tensor_(tensor),
      compute_(compute),
      communication_(communication),
      packed_(device.make_event()),
      summed_(device.make_event()) {
    for (std::size_t i = 0; i < plan.units().size(); ++i) {
        const Range held = plan.held(i);
        for (const TensorRange& range : tensor_ranges(plan.unit(i), plan.params(), held)) {
            const ParamSpec& param = plan.params()[static_cast<std::size_t>(range.param)];
            if (!param.grad_partial_over_tensor) continue;
            invariant(tensor != nullptr && tensor->size() % param.tensor_replicas == 0,
                      "replicas of a parameter without a tensor axis that holds them");
            const std::int64_t parts = tensor->size() / param.tensor_replicas;
            const std::int64_t mine = tensor->rank() / param.tensor_replicas;
            const std::int64_t begin = range.unit_offset - held.begin;
            const std::int64_t count = range.flat.size();
            pieces_.push_back({i, {begin, begin + count}, elements_ + mine * count});
            elements_ += parts * count;
            several_parts_ |= parts > 1;
        }
    }
    if (elements_ > 0)
        memory_ = device.allocate(storage_bytes(elements_, DType::F32), Memory::Device, "replica gradients");
}

TensorView ReplicaSums::gradient(const Piece& piece) const {
    return gradients_.held(piece.unit).flat(piece.of_held.begin, piece.of_held.size());
}

TensorView ReplicaSums::packed(const Piece& piece) const {
    return memory_.view(Shape{elements_}, DType::F32).flat(piece.packed, piece.of_held.size());
}

void ReplicaSums::add() {
    if (pieces_.empty()) return;
    const TensorView message = memory_.view(Shape{elements_}, DType::F32);
    if (several_parts_) ops_.elementwise.fill_zero(compute_, message);
    for (const Piece& piece : pieces_)
        device_.copy(compute_, packed(piece).data, gradient(piece).data, gradient(piece).bytes());
    compute_.record(*packed_);
    communication_.wait(*packed_);
    tensor_->all_reduce(message, Reduce::Sum, communication_);
    communication_.record(*summed_);
    compute_.wait(*summed_);
    for (const Piece& piece : pieces_)
        device_.copy(compute_, gradient(piece).data, packed(piece).data, gradient(piece).bytes());
}

std::vector<MemoryRow> ReplicaSums::memory_table() const { return {{"replica gradients", memory_.bytes()}}; }

}  // namespace trainctl
