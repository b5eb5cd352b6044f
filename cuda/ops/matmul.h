// Dense layers of the cuda backend.
#pragma once

#include "cuda/products.h"
#include "trainctl/ops/ops.h"

namespace trainctl::cuda {

class CudaMatmul final : public MatmulOps {
  public:
    explicit CudaMatmul(Products& products) : products_(products) {}

    void forward(Stream& stream, TensorView y, TensorView x, TensorView w, TensorView bias,
                 TensorView scratch) override;
    void backward_input(Stream& stream, TensorView dx, TensorView dy, TensorView w, Into into,
                        TensorView scratch) override;
    void backward_weight(Stream& stream, TensorView dw, TensorView dy, TensorView x, Into into,
                         TensorView scratch) override;
    [[nodiscard]] std::size_t scratch_bytes(MatmulKind kind, std::int64_t m, std::int64_t n, std::int64_t k,
                                            DType dtype) const override;

  private:
    Products& products_;
};

}  // namespace trainctl::cuda
