#include "model/block.h"

namespace trainctl {
namespace {

NormSettings norm_settings(const ModelSpec& model) {
    return {architecture_row(model.architecture).norm, static_cast<float>(model.norm_epsilon)};
}

}  // namespace

Block::Block(const std::vector<ParamSpec>& params, const ModelSpec& model, UnitId unit, int in_flight)
    : attention_(UnitIndex(params, unit), model, norm_settings(model)),
      mlp_(UnitIndex(params, unit), model, norm_settings(model), architecture_row(model.architecture).mlp),
      saved_(in_flight) {}

SavedRef Block::forward(const StepContext& context, const Weights& weights, Carry& carry,
                        TensorView rope_table) {
    Saved saved;
    saved.attention = attention_.forward(context, weights, carry, rope_table);
    saved.mlp = mlp_.forward(context, weights, carry);
    return saved_.store(saved);
}

void Block::evaluate(const StepContext& context, const Weights& weights, Carry& carry,
                     TensorView rope_table) {
    attention_.forward(context, weights, carry, rope_table);
    mlp_.forward(context, weights, carry);
}

void Block::backward(const StepContext& context, const Weights& weights, const GradView& grads,
                     SavedRef&& consumed, TensorView d, TensorView rope_table) {
    const Saved saved = saved_.consume(std::move(consumed));
    mlp_.backward(context, weights, grads, saved.mlp, d);
    attention_.backward(context, weights, grads, saved.attention, d, rope_table);
}

}  // namespace trainctl
