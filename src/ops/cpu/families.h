// The op families of the cpu backend other than matrix products: they check, gather pointers and call
// kernels. Thread rule: that of the device's streams; the objects hold no state that changes.
#pragma once

#include "ops/cpu/kernels.h"
#include "trainctl/ops/ops.h"

namespace trainctl::cpu {

class CpuNorm final : public NormOps {
  public:
    CpuNorm(int threads, NormKernels kernels) : threads_(threads), kernels_(kernels) {}
    void forward(Stream& stream, TensorView y, TensorView residual_out, TensorView statistics,
                 TensorView residual_in, TensorView branch, TensorView gain, TensorView bias,
                 NormSettings settings) override;
    void backward(Stream& stream, TensorView dresidual_in, TensorView dgain, TensorView dbias, TensorView dy,
                  TensorView dresidual_out, TensorView residual, TensorView statistics, TensorView gain,
                  Into into, NormSettings settings, TensorView scratch) override;
    [[nodiscard]] std::size_t backward_scratch_bytes(std::int64_t m, std::int64_t c,
                                                     DType dtype) const override;

  private:
    int threads_;
    NormKernels kernels_;
};

class CpuAttention final : public AttentionOps {
  public:
    CpuAttention(int threads, AttentionKernels kernels) : threads_(threads), kernels_(kernels) {}
    void forward(Stream& stream, TensorView out, TensorView lse, TensorView qkv, AttentionSettings settings,
                 TensorView scratch) override;
    void backward(Stream& stream, TensorView dqkv, TensorView dout, TensorView out, TensorView lse,
                  TensorView qkv, AttentionSettings settings, TensorView scratch) override;
    [[nodiscard]] std::size_t forward_scratch_bytes(AttentionSettings settings, DType dtype) const override;
    [[nodiscard]] std::size_t backward_scratch_bytes(AttentionSettings settings, DType dtype) const override;
    void rope(Stream& stream, TensorView qkv, TensorView table, AttentionSettings settings,
              RopeDirection direction) override;

  private:
    int threads_;
    AttentionKernels kernels_;
};

class CpuElementwise final : public ElementwiseOps {
  public:
    CpuElementwise(int threads, ElementwiseKernels kernels) : threads_(threads), kernels_(kernels) {}
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

  private:
    int threads_;
    ElementwiseKernels kernels_;
};

class CpuEmbedding final : public EmbeddingOps {
  public:
    CpuEmbedding(int threads, EmbeddingKernels kernels) : threads_(threads), kernels_(kernels) {}
    void forward(Stream& stream, TensorView x, TensorView tokens, TensorView table, TensorView positions,
                 std::int64_t length, std::int64_t first_row) override;
    void backward(Stream& stream, TensorView dtable, TensorView dpositions, TensorView dx, TensorView tokens,
                  std::int64_t length, std::int64_t first_row, Into table_into, Into positions_into,
                  TensorView scratch) override;
    [[nodiscard]] std::size_t backward_scratch_bytes(std::int64_t m, std::int64_t rows) const override;

  private:
    int threads_;
    EmbeddingKernels kernels_;
};

class CpuLoss final : public LossOps {
  public:
    CpuLoss(int threads, LossKernels kernels) : threads_(threads), kernels_(kernels) {}
    void cross_entropy(Stream& stream, TensorView losses, TensorView logits, TensorView targets,
                       LossSettings settings) override;
    void row_maxima(Stream& stream, TensorView maxima, TensorView logits, LossSettings settings) override;
    void exponential_sums(Stream& stream, TensorView sums, TensorView logits, TensorView maxima,
                          TensorView targets, LossSettings settings) override;
    void finish_cross_entropy(Stream& stream, TensorView losses, TensorView logits, TensorView maxima,
                              TensorView sums, TensorView targets, LossSettings settings) override;
    void sum_losses(Stream& stream, TensorView total, TensorView losses, Into into) override;

  private:
    int threads_;
    LossKernels kernels_;
};

class CpuOptimizer final : public OptimizerOps {
  public:
    CpuOptimizer(int threads, OptimizerKernels kernels) : threads_(threads), kernels_(kernels) {}
    void sum_squares(Stream& stream, TensorView bins, TensorView gradient, Into into) override;
    void finish_norm(Stream& stream, TensorView scalars, TensorView bins, double max_norm,
                     double inverse_loss_scale) override;
    void adamw(Stream& stream, TensorView weights, TensorView master, TensorView m, TensorView v,
               TensorView gradient, TensorView flags, TensorView scalars, AdamwSettings settings) override;

  private:
    int threads_;
    OptimizerKernels kernels_;
};

// Exit::Internal unless kernels exist for it (F32, BF16, F16).
void require_compute(const char* op, DType dtype);

// A mask for kernels; probability 0 keeps everything.
MaskArgs mask_args(const Dropout& dropout);

}  // namespace trainctl::cpu
