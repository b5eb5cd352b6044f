#include "model/vocabulary_loss.h"

namespace trainctl {

void vocabulary_loss(const StepContext& context, TensorView losses, TensorView logits, TensorView targets,
                     LossSettings settings) {
    LossOps& loss = context.ops.loss;
    if (context.tensor.alone()) {
        loss.cross_entropy(context.stream, losses, logits, targets, settings);
        return;
    }
    settings.first_column = context.first_token(logits.shape[1]);
    const std::int64_t rows = logits.shape[0];
    const ArenaScope maxima(context.arena, Shape{rows}, context.statistics);
    const ArenaScope sums(context.arena, Shape{rows, 2}, context.statistics);
    loss.row_maxima(context.stream, maxima.view(), logits, settings);
    context.tensor.all_reduce(context.stream, maxima.view(), Reduce::Max);
    loss.exponential_sums(context.stream, sums.view(), logits, maxima.view(), targets, settings);
    context.tensor.all_reduce(context.stream, sums.view(), Reduce::Sum);
    loss.finish_cross_entropy(context.stream, losses, logits, maxima.view(), sums.view(), targets, settings);
}

}  // namespace trainctl
