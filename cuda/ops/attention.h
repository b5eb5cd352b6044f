// Attention and rotary embedding of the cuda backend.
#pragma once

#include "trainctl/ops/ops.h"

namespace trainctl::cuda {

// Heads of up to 256 elements; the scale must be positive.
class CudaAttention final : public AttentionOps {
  public:
    void forward(Stream& stream, TensorView out, TensorView lse, TensorView qkv, AttentionSettings settings,
                 TensorView scratch) override;
    void backward(Stream& stream, TensorView dqkv, TensorView dout, TensorView out, TensorView lse,
                  TensorView qkv, AttentionSettings settings, TensorView scratch) override;
    [[nodiscard]] std::size_t forward_scratch_bytes(AttentionSettings settings, DType dtype) const override;
    [[nodiscard]] std::size_t backward_scratch_bytes(AttentionSettings settings, DType dtype) const override;
    void rope(Stream& stream, TensorView qkv, TensorView table, AttentionSettings settings,
              RopeDirection direction) override;
};

}  // namespace trainctl::cuda
