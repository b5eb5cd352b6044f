#include "model/mlp_part.h"

#include "model/branch_dropout.h"
#include "model/whole_rows.h"

namespace trainctl {
namespace {

Linear up_product(const UnitIndex& unit, MlpKind kind) {
    if (kind == MlpKind::SwiGlu) return Linear(unit, {"mlp.gate", "mlp.up"}, BiasUse::InProduct);
    return Linear(unit, {"mlp.up"}, BiasUse::ByCaller);
}

}  // namespace

MlpPart::MlpPart(const UnitIndex& unit, const ModelSpec& model, const TensorPart& part, NormSettings norm,
                 MlpKind kind)
    : unit_(unit.unit()),
      ffn_(model.ffn_size / part.size),
      kind_(kind),
      norm_(unit, "mlp_norm", norm),
      up_(up_product(unit, kind)),
      down_(unit, {"mlp.down"}, BiasUse::InSum) {}

MlpSaved MlpPart::forward(const StepContext& context, const Weights& weights, Carry& carry, Keep keep) const {
    MlpSaved saved = widen(context, weights, carry, keep);
    carry.branch = context.residual_activation(carry.residual.shape[1]);
    {
        const WholeRows branch(context, carry.branch, RowContent::Unwritten);
        down_.forward(context, weights, branch.view(), saved.activated);
        branch.sum_into_local();
    }
    drop_branch(context, carry.branch, context.residual_dropout_at(unit_, DropoutPlace::MlpOutput));
    if (keep < Keep::Everything) context.drop(saved.activated);
    return saved;
}

MlpSaved MlpPart::recompute(const StepContext& context, const Weights& weights, Carry& carry) const {
    MlpSaved saved = widen(context, weights, carry, Keep::Everything);
    carry = {};
    return saved;
}

MlpSaved MlpPart::widen(const StepContext& context, const Weights& weights, Carry& carry, Keep keep) const {
    MlpSaved saved;
    saved.norm = norm_.forward(context, weights, carry, keep);
    saved.up = context.activation(kind_ == MlpKind::SwiGlu ? 2 * ffn_ : ffn_);
    {
        const WholeRows y(context, saved.norm.y, RowContent::Gathered);
        up_.forward(context, weights, saved.up, y.view());
    }
    if (keep < Keep::Everything) context.drop(saved.norm.y);
    activate(context, weights, saved);
    if (keep < Keep::Products) context.drop(saved.up);
    return saved;
}

void MlpPart::activate(const StepContext& context, const Weights& weights, MlpSaved& saved) const {
    saved.activated = context.activation(ffn_);
    if (kind_ == MlpKind::SwiGlu) {
        context.ops.elementwise.swiglu_forward(context.stream, saved.activated, saved.up);
    } else {
        context.ops.elementwise.bias_gelu_forward(context.stream, saved.activated, saved.up,
                                                  up_.bias(weights));
    }
}

TensorView MlpPart::activate_backward(const StepContext& context, const Weights& weights,
                                      const GradView& grads, const MlpSaved& saved,
                                      TensorView dactivated) const {
    ElementwiseOps& elementwise = context.ops.elementwise;
    if (kind_ == MlpKind::SwiGlu) {
        const TensorView dup = context.activation(2 * ffn_);
        elementwise.swiglu_backward(context.stream, dup, dactivated, saved.up);
        context.release(dactivated);
        return dup;
    }
    const Scratch scratch(context, elementwise.column_sum_scratch_bytes(context.rows(), ffn_));
    elementwise.bias_gelu_backward(context.stream, dactivated, up_.bias(grads.grads), dactivated, saved.up,
                                   up_.bias(weights), grads.into, scratch.view());
    return dactivated;
}

void MlpPart::backward(const StepContext& context, const Weights& weights, const GradView& grads,
                       MlpSaved saved, TensorView d) const {
    if (saved.activated.empty()) activate(context, weights, saved);
    const TensorView dactivated = saved.activated;  // its last reader is the weight gradient below
    {
        const BranchGradient local(context, d, context.residual_dropout_at(unit_, DropoutPlace::MlpOutput));
        const WholeRows dbranch(context, local.view(), RowContent::Gathered);
        down_.backward_parameters(context, grads, dbranch.view(), saved.activated);
        down_.backward_input(context, weights, dactivated, dbranch.view());
    }
    const TensorView dup = activate_backward(context, weights, grads, saved, dactivated);
    context.release(saved.up);
    if (saved.norm.y.empty()) norm_.repeat(context, weights, saved.norm);
    const TensorView dy = saved.norm.y;
    {
        const WholeRows y(context, saved.norm.y, RowContent::Gathered);
        up_.backward_parameters(context, grads, dup, y.view());
        up_.backward_input(context, weights, y.view(), dup);
        y.sum_into_local();
    }
    context.release(dup);
    norm_.backward(context, weights, grads, saved.norm, dy, d, d);
    context.release(dy);
}

}  // namespace trainctl
