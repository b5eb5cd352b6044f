#pragma once

#include "trainctl/ops/ops.h"

namespace trainctl::cuda {

class CudaOptimizer final : public OptimizerOps {
  public:
    void sum_squares(Stream& stream, TensorView bins, TensorView gradient, Into into) override;
    void finish_norm(Stream& stream, TensorView scalars, TensorView bins, double max_norm,
                     double inverse_loss_scale) override;
    void adamw(Stream& stream, TensorView weights, TensorView master, TensorView m, TensorView v,
               TensorView gradient, TensorView flags, TensorView scalars, AdamwSettings settings) override;
};

}  // namespace trainctl::cuda
