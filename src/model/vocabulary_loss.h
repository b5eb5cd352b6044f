// Cross-entropy of logits whose columns the tensor-parallel ranks share.
#pragma once

#include "model/step_context.h"

namespace trainctl {

// losses[m] of logits[m, this rank's columns], the same on every rank; in training the logits become their
// gradients. No rank ever sees another's logits: two numbers per row travel after the row's maximum.
void vocabulary_loss(const StepContext& context, TensorView losses, TensorView logits, TensorView targets,
                     LossSettings settings);

}  // namespace trainctl
