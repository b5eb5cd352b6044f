#include "model/block.h"

namespace trainctl {
namespace {

NormSettings norm_settings(const ModelSpec& model) {
    return {architecture_row(model.architecture).norm, static_cast<float>(model.norm_epsilon)};
}

}  // namespace

Block::Block(const std::vector<ParamSpec>& params, const ModelSpec& model, const TensorPart& part,
             UnitId unit, Keep keep, int in_flight)
    : keep_(keep),
      attention_(UnitIndex(params, unit), model, part, norm_settings(model)),
      mlp_(UnitIndex(params, unit), model, part, norm_settings(model),
           architecture_row(model.architecture).mlp),
      saved_(in_flight) {}

SavedRef Block::forward(const StepContext& context, const Weights& weights, Carry& carry,
                        TensorView rope_table) {
    Saved saved;
    saved.attention = attention_.forward(context, weights, carry, rope_table, keep_);
    // The sum between the two parts is not the block's input.
    saved.mlp = mlp_.forward(context, weights, carry, keep_ == Keep::Input ? Keep::Nothing : keep_);
    return saved_.store(saved);
}

void Block::evaluate(const StepContext& context, const Weights& weights, Carry& carry,
                     TensorView rope_table) {
    attention_.forward(context, weights, carry, rope_table, Keep::Nothing);
    mlp_.forward(context, weights, carry, Keep::Nothing);
}

void Block::recompute(const StepContext& context, const Weights& weights, Saved& saved,
                      TensorView rope_table) const {
    Carry carry{saved.attention.norm.residual, {}, ResidualOwner::Saved};
    saved.attention = attention_.forward(context, weights, carry, rope_table, Keep::Everything);
    saved.mlp = mlp_.recompute(context, weights, carry);
}

void Block::backward(const StepContext& context, const Weights& weights, const GradView& grads,
                     SavedRef&& consumed, TensorView d, TensorView rope_table) {
    Saved saved = saved_.consume(std::move(consumed));
    if (keep_ == Keep::Input) recompute(context, weights, saved, rope_table);
    mlp_.backward(context, weights, grads, saved.mlp, d);
    attention_.backward(context, weights, grads, saved.attention, d, rope_table);
}

}  // namespace trainctl
