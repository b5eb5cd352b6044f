#include "model/head.h"

#include <algorithm>

#include "model/vocabulary_loss.h"
#include "model/whole_rows.h"
#include "trainctl/model/architecture.h"

namespace trainctl {

std::int64_t default_chunk_rows(std::int64_t columns, DType dtype) {
    constexpr std::int64_t limit_bytes = std::int64_t{256} << 20;
    const std::int64_t row_bytes = columns * static_cast<std::int64_t>(dtype_size(dtype));
    return std::clamp<std::int64_t>(limit_bytes / row_bytes, 128, 1024);
}

Head::Head(const std::vector<ParamSpec>& params, const ModelSpec& model, std::int64_t chunk_rows)
    : vocab_size_(model.vocab_size),
      chunk_rows_(chunk_rows),
      output_(UnitIndex(params, static_cast<UnitId>(model.layers + 1)).find("output.weight")),
      norm_(UnitIndex(params, static_cast<UnitId>(model.layers + 1)), "norm",
            {architecture_row(model.architecture).norm, static_cast<float>(model.norm_epsilon)}) {}

// Chunks of nearly equal size: a short rest would run its products far from their best speed.
std::int64_t Head::rows_per_chunk(const StepContext& context, std::int64_t columns) const {
    const std::int64_t rows = context.rows();
    if (chunk_rows_ > 0) return std::min(chunk_rows_, rows);
    const std::int64_t limit = default_chunk_rows(columns, context.compute);
    const std::int64_t chunks = (rows + limit - 1) / limit;
    return (rows + chunks - 1) / chunks;
}

void Head::chunk(const StepContext& context, const OutputMatrix& output, Into into, TensorView y,
                 TensorView losses, TensorView targets, const LossSettings& settings) const {
    MatmulOps& matmul = context.ops.matmul;
    const std::int64_t m = y.shape[0];
    const std::int64_t v = output.weight.shape[0];
    const std::int64_t c = output.weight.shape[1];
    const ArenaScope logits(context.arena, Shape{m, v}, context.compute);
    {
        const Scratch scratch(context, matmul.scratch_bytes(MatmulKind::Forward, m, v, c, context.compute));
        matmul.forward(context.stream, logits.view(), y, output.weight, {}, scratch.view());
    }
    vocabulary_loss(context, losses, logits.view(), targets, settings);
    if (settings.pass == LossPass::Evaluate) return;
    {
        const Scratch scratch(context,
                              matmul.scratch_bytes(MatmulKind::BackwardWeight, m, v, c, context.compute));
        matmul.backward_weight(context.stream, output.gradient, logits.view(), y, into, scratch.view());
    }
    const Scratch scratch(context, matmul.scratch_bytes(MatmulKind::BackwardInput, m, v, c, context.compute));
    matmul.backward_input(context.stream, y, logits.view(), output.weight, Into::Overwrite, scratch.view());
}

void Head::all_chunks(const StepContext& context, const OutputMatrix& output, TensorView y,
                      const LossTarget& loss, const LossSettings& settings) const {
    const std::int64_t rows = context.rows();
    const std::int64_t step = rows_per_chunk(context, output.weight.shape[0]);
    const TensorView targets = context.micro.targets.reshaped(Shape{rows});
    // All losses are summed at once at the end: the sum does not depend on the chunks.
    const ArenaScope losses(context.arena, Shape{rows}, context.statistics);
    Into into = output.into;
    for (std::int64_t begin = 0; begin < rows; begin += step) {
        const std::int64_t count = std::min(step, rows - begin);
        chunk(context, output, into, y.rows(begin, count), losses.view().rows(begin, count),
              targets.rows(begin, count), settings);
        into = Into::Accumulate;
    }
    context.ops.loss.sum_losses(context.stream, loss.sum, losses.view(), loss.into);
}

TensorView Head::train(const StepContext& context, const Weights& weights, const GradView& grads,
                       const OutputMatrix& output, Carry& carry, float gradient_scale,
                       const LossTarget& loss) const {
    const NormSaved saved = norm_.forward(context, weights, carry, Keep::Everything);
    {
        const WholeRows y(context, saved.y, RowContent::Gathered);
        all_chunks(context, output, y.view(), loss, {vocab_size_, gradient_scale, LossPass::Train});
        y.sum_into_local();
    }
    const TensorView d = context.residual_activation(saved.y.shape[1]);
    norm_.backward(context, weights, grads, saved, saved.y, d, {});
    context.release(saved.y);
    carry = {};
    return d;
}

void Head::evaluate(const StepContext& context, const Weights& weights, const OutputMatrix& output,
                    Carry& carry, const LossTarget& loss) const {
    const NormSaved saved = norm_.forward(context, weights, carry, Keep::Nothing);
    context.release(carry.residual);
    {
        const WholeRows y(context, saved.y, RowContent::Gathered);
        all_chunks(context, output, y.view(), loss, {vocab_size_, 1.0F, LossPass::Evaluate});
    }
    context.release(saved.y);
    carry = {};
}

}  // namespace trainctl
