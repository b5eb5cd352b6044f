#pragma once

#include "trainctl/ops/ops.h"

namespace trainctl::cuda {

class CudaNorm final : public NormOps {
  public:
    void forward(Stream& stream, TensorView y, TensorView residual_out, TensorView statistics,
                 TensorView residual_in, TensorView branch, TensorView gain, TensorView bias,
                 NormSettings settings) override;
    void backward(Stream& stream, TensorView dresidual_in, TensorView dgain, TensorView dbias, TensorView dy,
                  TensorView dresidual_out, TensorView residual, TensorView statistics, TensorView gain,
                  Into into, NormSettings settings, TensorView scratch) override;
    [[nodiscard]] std::size_t backward_scratch_bytes(std::int64_t m, std::int64_t c,
                                                     DType dtype) const override;
};

}  // namespace trainctl::cuda
