#pragma once

#include "trainctl/ops/ops.h"

namespace trainctl::cuda {

class CudaLoss final : public LossOps {
  public:
    void cross_entropy(Stream& stream, TensorView losses, TensorView logits, TensorView targets,
                       LossSettings settings) override;
    void row_maxima(Stream& stream, TensorView maxima, TensorView logits, LossSettings settings) override;
    void exponential_sums(Stream& stream, TensorView sums, TensorView logits, TensorView maxima,
                          TensorView targets, LossSettings settings) override;
    void finish_cross_entropy(Stream& stream, TensorView losses, TensorView logits, TensorView maxima,
                              TensorView sums, TensorView targets, LossSettings settings) override;
    void sum_losses(Stream& stream, TensorView total, TensorView losses, Into into) override;
};

}  // namespace trainctl::cuda
