#include "model/residual_norm.h"

namespace trainctl {

ResidualNorm::ResidualNorm(const UnitIndex& unit, const std::string& name, NormSettings settings)
    : gain_(unit.place(name + ".weight")), bias_(unit.find(name + ".bias")), settings_(settings) {
    invariant((bias_ != no_place) == (settings.kind == NormKind::LayerNorm),
              "a LayerNorm has a bias and an RMSNorm has none");
}

NormSaved ResidualNorm::forward(const StepContext& context, const Weights& weights, Carry& carry,
                                Keep keep) const {
    const std::int64_t hidden = carry.residual.shape[1];
    NormSaved saved;
    saved.statistics = context.arena.tensor(Shape{context.residual_rows(), 2}, context.statistics);
    const bool adds = !carry.branch.empty();
    if (adds) saved.residual = context.residual_activation(hidden);
    saved.y = context.residual_activation(hidden);
    normalise(context, weights, saved, carry.residual, carry.branch);
    if (adds) {
        context.release(carry.branch);
        if (carry.owner == ResidualOwner::Carry) context.release(carry.residual);
    } else {
        saved.residual = carry.residual;
    }
    if (keep < Keep::Products) {
        context.drop(saved.statistics);
    }
    carry = {saved.residual, {}, keep == Keep::Nothing ? ResidualOwner::Carry : ResidualOwner::Saved};
    return saved;
}

void ResidualNorm::repeat(const StepContext& context, const Weights& weights, NormSaved& saved) const {
    saved.y = context.residual_activation(saved.residual.shape[1]);
    NormSaved only_y = saved;
    only_y.residual = {};  // nothing is added this time
    normalise(context, weights, only_y, saved.residual, {});
}

void ResidualNorm::normalise(const StepContext& context, const Weights& weights, const NormSaved& saved,
                             TensorView residual_in, TensorView branch) const {
    context.ops.norm.forward(context.stream, saved.y, saved.residual, saved.statistics, residual_in, branch,
                             weights.tensor(gain_), bias_ == no_place ? TensorView{} : weights.tensor(bias_),
                             settings_);
}

void ResidualNorm::backward(const StepContext& context, const Weights& weights, const GradView& grads,
                            const NormSaved& saved, TensorView dy, TensorView d, TensorView d_above) const {
    NormOps& norm = context.ops.norm;
    const TensorView dbias = bias_ == no_place ? TensorView{} : grads.grads.tensor(bias_);
    {
        const Scratch scratch(context,
                              norm.backward_scratch_bytes(dy.shape[0], dy.shape[1], context.compute));
        norm.backward(context.stream, d, grads.grads.tensor(gain_), dbias, dy, d_above, saved.residual,
                      saved.statistics, weights.tensor(gain_), grads.into, settings_, scratch.view());
    }
    context.release(saved.residual);
    context.release(saved.statistics);
}

}  // namespace trainctl
