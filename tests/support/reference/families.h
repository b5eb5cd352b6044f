// The op families of the reference backend, one class each.
#pragma once

#include "trainctl/ops/ops.h"

namespace trainctl::reference {

class ReferenceMatmul final : public MatmulOps {
  public:
    void forward(Stream&, TensorView y, TensorView x, TensorView w, TensorView bias, TensorView) override;
    void backward_input(Stream&, TensorView dx, TensorView dy, TensorView w, Into, TensorView) override;
    void backward_weight(Stream&, TensorView dw, TensorView dy, TensorView x, Into, TensorView) override;
    [[nodiscard]] std::size_t scratch_bytes(MatmulKind, std::int64_t, std::int64_t, std::int64_t,
                                            DType) const override {
        return 0;
    }
};

class ReferenceNorm final : public NormOps {
  public:
    void forward(Stream&, TensorView y, TensorView residual_out, TensorView statistics,
                 TensorView residual_in, TensorView branch, TensorView gain, TensorView bias,
                 NormSettings) override;
    void backward(Stream&, TensorView dresidual_in, TensorView dgain, TensorView dbias, TensorView dy,
                  TensorView dresidual_out, TensorView residual, TensorView statistics, TensorView gain, Into,
                  NormSettings, TensorView) override;
    [[nodiscard]] std::size_t backward_scratch_bytes(std::int64_t, std::int64_t, DType) const override {
        return 0;
    }
};

class ReferenceAttention final : public AttentionOps {
  public:
    void forward(Stream&, TensorView out, TensorView lse, TensorView qkv, AttentionSettings,
                 TensorView) override;
    void backward(Stream&, TensorView dqkv, TensorView dout, TensorView out, TensorView lse, TensorView qkv,
                  AttentionSettings, TensorView) override;
    [[nodiscard]] std::size_t forward_scratch_bytes(AttentionSettings, DType) const override { return 0; }
    [[nodiscard]] std::size_t backward_scratch_bytes(AttentionSettings, DType) const override { return 0; }
    void rope(Stream&, TensorView qkv, TensorView table, AttentionSettings, RopeDirection) override;
};

class ReferenceElementwise final : public ElementwiseOps {
  public:
    void bias_gelu_forward(Stream&, TensorView y, TensorView x, TensorView bias) override;
    void bias_gelu_backward(Stream&, TensorView dx, TensorView dbias, TensorView dy, TensorView x,
                            TensorView bias, Into, TensorView) override;
    void swiglu_forward(Stream&, TensorView y, TensorView gate_up) override;
    void swiglu_backward(Stream&, TensorView dgate_up, TensorView dy, TensorView gate_up) override;
    void bias_backward(Stream&, TensorView dbias, TensorView dy, Into, TensorView) override;
    [[nodiscard]] std::size_t column_sum_scratch_bytes(std::int64_t, std::int64_t) const override {
        return 0;
    }
    void add(Stream&, TensorView y, TensorView a, TensorView b) override;
    void dropout(Stream&, TensorView y, TensorView x, std::int64_t rows_per_sample, Dropout site) override;
    void cast(Stream&, TensorView to, TensorView from) override;
    void fill_zero(Stream&, TensorView x) override;
};

class ReferenceEmbedding final : public EmbeddingOps {
  public:
    void forward(Stream&, TensorView x, TensorView tokens, TensorView table, TensorView positions,
                 std::int64_t length, std::int64_t first_row) override;
    void backward(Stream&, TensorView dtable, TensorView dpositions, TensorView dx, TensorView tokens,
                  std::int64_t length, std::int64_t first_row, Into table_into, Into positions_into,
                  TensorView) override;
    [[nodiscard]] std::size_t backward_scratch_bytes(std::int64_t, std::int64_t) const override { return 0; }
};

class ReferenceLoss final : public LossOps {
  public:
    void cross_entropy(Stream&, TensorView losses, TensorView logits, TensorView targets,
                       LossSettings) override;
    void row_maxima(Stream&, TensorView maxima, TensorView logits, LossSettings) override;
    void exponential_sums(Stream&, TensorView sums, TensorView logits, TensorView maxima, TensorView targets,
                          LossSettings) override;
    void finish_cross_entropy(Stream&, TensorView losses, TensorView logits, TensorView maxima,
                              TensorView sums, TensorView targets, LossSettings) override;
    void sum_losses(Stream&, TensorView total, TensorView losses, Into) override;
};

class ReferenceOptimizer final : public OptimizerOps {
  public:
    void sum_squares(Stream&, TensorView bins, TensorView gradient, Into) override;
    void finish_norm(Stream&, TensorView scalars, TensorView bins, double max_norm,
                     double inverse_loss_scale) override;
    void adamw(Stream&, TensorView weights, TensorView master, TensorView m, TensorView v,
               TensorView gradient, TensorView flags, TensorView scalars, AdamwSettings) override;
};

}  // namespace trainctl::reference
