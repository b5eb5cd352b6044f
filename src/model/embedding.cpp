#include "model/embedding.h"

#include "model/branch_dropout.h"
#include "model/whole_rows.h"

namespace trainctl {

Embedding::Embedding(const std::vector<ParamSpec>& params)
    : tokens_(UnitIndex(params, 0).place("tokens.weight")),
      positions_(UnitIndex(params, 0).find("positions.weight")) {}

Carry Embedding::forward(const StepContext& context, const Weights& weights) const {
    const TensorView tokens = context.micro.tokens.reshaped(Shape{context.rows()});
    const TensorView words = table(weights);
    const TensorView x = context.residual_activation(words.shape[1]);
    {
        // Every token is in the table of one rank; positions are added to the sum once.
        const WholeRows whole(context, x, RowContent::Unwritten);
        context.ops.embedding.forward(context.stream, whole.view(), tokens, words,
                                      context.tensor.part().rank == 0 ? positions(weights) : TensorView{},
                                      context.micro.length, context.first_token(words.shape[0]));
        whole.sum_into_local();
    }
    drop_branch(context, x, context.residual_dropout_at(0, DropoutPlace::Embedding));
    return {x, {}, ResidualOwner::Carry};
}

void Embedding::backward(const StepContext& context, const GradView& grads, Into table_into,
                         TensorView d) const {
    drop_branch(context, d, context.residual_dropout_at(0, DropoutPlace::Embedding));
    const TensorView tokens = context.micro.tokens.reshaped(Shape{context.rows()});
    const TensorView dtable = table(grads.grads);
    {
        const WholeRows whole(context, d, RowContent::Gathered);
        const Scratch scratch(context,
                              context.ops.embedding.backward_scratch_bytes(context.rows(), dtable.shape[0]));
        context.ops.embedding.backward(context.stream, dtable, positions(grads.grads), whole.view(), tokens,
                                       context.micro.length, context.first_token(dtable.shape[0]), table_into,
                                       grads.into, scratch.view());
    }
    context.release(d);
}

}  // namespace trainctl
