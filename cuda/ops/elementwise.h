#pragma once

#include "trainctl/ops/ops.h"

namespace trainctl::cuda {

class CudaElementwise final : public ElementwiseOps {
  public:
    void bias_gelu_forward(Stream& stream, TensorView y, TensorView x, TensorView bias) override;
    void bias_gelu_backward(Stream& stream, TensorView dx, TensorView dbias, TensorView dy, TensorView x,
                            TensorView bias, Into into, TensorView scratch) override;
    void swiglu_forward(Stream& stream, TensorView y, TensorView gate_up) override;
    void swiglu_backward(Stream& stream, TensorView dgate_up, TensorView dy, TensorView gate_up) override;
    void bias_backward(Stream& stream, TensorView dbias, TensorView dy, Into into,
                       TensorView scratch) override;
    [[nodiscard]] std::size_t column_sum_scratch_bytes(std::int64_t m, std::int64_t n) const override;
    void add(Stream& stream, TensorView y, TensorView a, TensorView b) override;
    void dropout(Stream& stream, TensorView y, TensorView x, std::int64_t rows_per_sample,
                 Dropout site) override;
    void cast(Stream& stream, TensorView to, TensorView from) override;
    void fill_zero(Stream& stream, TensorView x) override;
};

}  // namespace trainctl::cuda
