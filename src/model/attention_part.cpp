#include "model/attention_part.h"

#include <cmath>

#include "model/branch_dropout.h"
#include "model/whole_rows.h"

namespace trainctl {

AttentionPart::AttentionPart(const UnitIndex& unit, const ModelSpec& model, const TensorPart& part,
                             NormSettings norm)
    : unit_(unit.unit()),
      heads_(head_part(model, part)),
      head_dim_(model.head_dim),
      norm_(unit, "attention_norm", norm),
      qkv_(unit, {"attention.q", "attention.k", "attention.v"}, BiasUse::InProduct),
      output_(unit, {"attention.output"}, BiasUse::InSum) {}

AttentionSettings AttentionPart::settings(const StepContext& context) const {
    AttentionSettings settings;
    settings.batch = context.micro.batch;
    settings.length = context.micro.length;
    settings.heads = heads_.heads;
    settings.kv_heads = heads_.kv_heads;
    settings.first_head = heads_.first_head;
    settings.head_dim = head_dim_;
    settings.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim_)));
    settings.dropout = context.dropout_at(unit_, DropoutPlace::Attention);
    return settings;
}

AttentionSaved AttentionPart::forward(const StepContext& context, const Weights& weights, Carry& carry,
                                      TensorView rope_table, Keep keep) const {
    AttentionSaved saved;
    saved.norm = norm_.forward(context, weights, carry, keep);
    saved.qkv = context.activation((heads_.heads + 2 * heads_.kv_heads) * head_dim_);
    {
        const WholeRows y(context, saved.norm.y, RowContent::Gathered);
        qkv_.forward(context, weights, saved.qkv, y.view());
    }
    if (keep < Keep::Everything) context.drop(saved.norm.y);
    if (!rope_table.empty()) {
        context.ops.attention.rope(context.stream, saved.qkv, rope_table, settings(context),
                                   RopeDirection::Forward);
    }
    attend(context, saved);
    if (keep < Keep::Products) {
        context.drop(saved.qkv);
        context.drop(saved.lse);
    }
    carry.branch = context.residual_activation(carry.residual.shape[1]);
    {
        const WholeRows branch(context, carry.branch, RowContent::Unwritten);
        output_.forward(context, weights, branch.view(), saved.out);
        branch.sum_into_local();
    }
    drop_branch(context, carry.branch, context.residual_dropout_at(unit_, DropoutPlace::AttentionOutput));
    if (keep < Keep::Products) context.drop(saved.out);
    return saved;
}

void AttentionPart::attend(const StepContext& context, AttentionSaved& saved) const {
    AttentionOps& attention = context.ops.attention;
    saved.out = context.activation(heads_.heads * head_dim_);
    saved.lse = context.arena.tensor(Shape{context.micro.batch, heads_.heads, context.micro.length},
                                     context.statistics);
    const Scratch scratch(context, attention.forward_scratch_bytes(settings(context), context.compute));
    attention.forward(context.stream, saved.out, saved.lse, saved.qkv, settings(context), scratch.view());
}

void AttentionPart::attend_backward(const StepContext& context, const AttentionSaved& saved, TensorView dqkv,
                                    TensorView dout) const {
    AttentionOps& attention = context.ops.attention;
    const Scratch scratch(context, attention.backward_scratch_bytes(settings(context), context.compute));
    attention.backward(context.stream, dqkv, dout, saved.out, saved.lse, saved.qkv, settings(context),
                       scratch.view());
}

void AttentionPart::backward(const StepContext& context, const Weights& weights, const GradView& grads,
                             AttentionSaved saved, TensorView d, TensorView rope_table) const {
    const TensorView dout = context.activation(heads_.heads * head_dim_);
    {
        const BranchGradient local(context, d,
                                   context.residual_dropout_at(unit_, DropoutPlace::AttentionOutput));
        const WholeRows dbranch(context, local.view(), RowContent::Gathered);
        output_.backward_parameters(context, grads, dbranch.view(), saved.out);
        output_.backward_input(context, weights, dout, dbranch.view());
    }
    const TensorView dqkv = context.activation(saved.qkv.shape[1]);
    attend_backward(context, saved, dqkv, dout);
    context.release(dout);
    context.release(saved.out);
    context.release(saved.lse);
    context.release(saved.qkv);
    if (!rope_table.empty()) {
        context.ops.attention.rope(context.stream, dqkv, rope_table, settings(context),
                                   RopeDirection::Backward);
    }
    if (saved.norm.y.empty()) norm_.repeat(context, weights, saved.norm);
    const TensorView dy = saved.norm.y;  // y's last reader is the weight gradient
    {
        const WholeRows y(context, saved.norm.y, RowContent::Gathered);
        qkv_.backward_parameters(context, grads, dqkv, y.view());
        qkv_.backward_input(context, weights, y.view(), dqkv);
        y.sum_into_local();
    }
    context.release(dqkv);
    norm_.backward(context, weights, grads, saved.norm, dy, d, d);
    context.release(dy);
}

}  // namespace trainctl
