#include "parallel/sim_harness.h"

namespace trainctl::test {

void TimedCommunicator::gradients(std::int64_t elements, Stream& stream) {
    ++gradient_messages;
    gradient_elements += elements;
    if (timed_ == Timed::Gradients) device_.message(stream, 0.0);
}

void TimedCommunicator::all_reduce(TensorView tensor, Reduce reduce, Stream& stream) {
    invariant(reduce == Reduce::Sum, "only sums");
    if (tensor.dtype == DType::F32) gradients(tensor.elements(), stream);
}

void TimedCommunicator::reduce_scatter(TensorView shard, TensorView full, Into /*into*/, Stream& stream) {
    invariant(full.elements() == shard.elements() * size_, "reduce_scatter: unequal parts");
    gradients(full.elements(), stream);
}

void TimedCommunicator::all_gather(TensorView full, TensorView shard, Stream& stream) {
    invariant(full.elements() == shard.elements() * size_, "all_gather: unequal parts");
    if (timed_ == Timed::Weights) device_.message(stream, 0.0);
}

std::vector<ParamSpec> equal_units(int units, std::int64_t elements) {
    std::vector<ParamSpec> params;
    for (int unit = 0; unit < units; ++unit) {
        ParamSpec param;
        param.name = "u" + std::to_string(unit);
        param.global = param.padded = Shape{elements, 1};
        param.unit = unit;
        params.push_back(param);
    }
    return params;
}

}  // namespace trainctl::test
