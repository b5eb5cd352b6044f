#include "model/embedding.h"

namespace trainctl {

Embedding::Embedding(const std::vector<ParamSpec>& params)
    : tokens_(UnitIndex(params, 0).place("tokens.weight")),
      positions_(UnitIndex(params, 0).find("positions.weight")) {}

Carry Embedding::forward(const StepContext& context, const Weights& weights) const {
    const TensorView tokens = context.micro.tokens.reshaped(Shape{context.rows()});
    const TensorView x = context.activation(table(weights).shape[1]);
    context.ops.embedding.forward(context.stream, x, tokens, table(weights), positions(weights),
                                  context.micro.length, 0);
    const Dropout site = context.dropout_at(0, DropoutPlace::Embedding);
    if (site.probability > 0.0F) {
        context.ops.elementwise.dropout(context.stream, x, x, context.micro.length, site);
    }
    return {x, {}, ResidualOwner::Carry};
}

void Embedding::backward(const StepContext& context, const GradView& grads, Into table_into,
                         TensorView d) const {
    const Dropout site = context.dropout_at(0, DropoutPlace::Embedding);
    if (site.probability > 0.0F) {
        context.ops.elementwise.dropout(context.stream, d, d, context.micro.length, site);
    }
    const TensorView tokens = context.micro.tokens.reshaped(Shape{context.rows()});
    const TensorView dtable = table(grads.grads);
    {
        const Scratch scratch(context,
                              context.ops.embedding.backward_scratch_bytes(context.rows(), dtable.shape[0]));
        context.ops.embedding.backward(context.stream, dtable, positions(grads.grads), d, tokens,
                                       context.micro.length, 0, table_into, grads.into, scratch.view());
    }
    context.release(d);
}

}  // namespace trainctl
