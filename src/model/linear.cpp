#include "model/linear.h"

namespace trainctl {
namespace {

// Place of the first member; the others follow it.
int first_place(const UnitIndex& unit, const std::vector<std::string>& members, const std::string& part) {
    const int first = unit.find(members.front() + part);
    for (std::size_t i = 1; i < members.size(); ++i) {
        const int member = unit.find(members[i] + part);
        invariant(member == (first == no_place ? no_place : first + static_cast<int>(i)),
                  "members of a fused group are not adjacent");
    }
    return first;
}

}  // namespace

Linear::Linear(const UnitIndex& unit, const std::vector<std::string>& members, BiasUse bias_use)
    : members_(static_cast<int>(members.size())),
      weight_(first_place(unit, members, ".weight")),
      bias_(first_place(unit, members, ".bias")),
      bias_use_(bias_use) {
    invariant(weight_ != no_place, "a dense layer without a weight");
}

bool Linear::adds_bias(const StepContext& context) const {
    return bias_use_ == BiasUse::InProduct ||
           (bias_use_ == BiasUse::InSum && context.tensor.part().rank == 0);
}

void Linear::forward(const StepContext& context, const Weights& weights, TensorView y, TensorView x) const {
    MatmulOps& matmul = context.ops.matmul;
    const TensorView w = weight(weights);
    const Scratch scratch(context, matmul.scratch_bytes(MatmulKind::Forward, x.shape[0], w.shape[0],
                                                        w.shape[1], context.compute));
    const TensorView added = adds_bias(context) ? bias(weights) : TensorView{};
    matmul.forward(context.stream, y, x, w, added, scratch.view());
}

void Linear::backward_parameters(const StepContext& context, const GradView& grads, TensorView dy,
                                 TensorView x) const {
    if (bias_ != no_place && bias_use_ != BiasUse::ByCaller) {
        ElementwiseOps& elementwise = context.ops.elementwise;
        const Scratch scratch(context, elementwise.column_sum_scratch_bytes(dy.shape[0], dy.shape[1]));
        elementwise.bias_backward(context.stream, bias(grads.grads), dy, grads.into, scratch.view());
    }
    MatmulOps& matmul = context.ops.matmul;
    const Scratch scratch(context, matmul.scratch_bytes(MatmulKind::BackwardWeight, dy.shape[0], dy.shape[1],
                                                        x.shape[1], context.compute));
    matmul.backward_weight(context.stream, weight(grads.grads), dy, x, grads.into, scratch.view());
}

void Linear::backward_input(const StepContext& context, const Weights& weights, TensorView dx,
                            TensorView dy) const {
    MatmulOps& matmul = context.ops.matmul;
    const Scratch scratch(context, matmul.scratch_bytes(MatmulKind::BackwardInput, dy.shape[0], dy.shape[1],
                                                        dx.shape[1], context.compute));
    matmul.backward_input(context.stream, dx, dy, weight(weights), Into::Overwrite, scratch.view());
}

}  // namespace trainctl
