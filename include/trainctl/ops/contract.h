// What every op demands of its tensors, checked in one place for all backends. Each function returns the
// sizes it has found; a violation is Exit::Internal naming op, tensor, what was expected and what was found.
#pragma once

#include <cstdint>

#include "trainctl/ops/ops.h"

namespace trainctl::contract {

struct MatmulSizes {
    std::int64_t m = 0;
    std::int64_t n = 0;
    std::int64_t k = 0;
};
// `out` may be F32 while the inputs are narrower.
MatmulSizes matmul_forward(const TensorView& y, const TensorView& x, const TensorView& w,
                           const TensorView& bias);
MatmulSizes matmul_backward_input(const TensorView& dx, const TensorView& dy, const TensorView& w);
MatmulSizes matmul_backward_weight(const TensorView& dw, const TensorView& dy, const TensorView& x);

// Rows x columns of a tensor whose last dimension is special.
struct RowSizes {
    std::int64_t rows = 0;
    std::int64_t columns = 0;
};
RowSizes norm_forward(const TensorView& y, const TensorView& residual_out, const TensorView& statistics,
                      const TensorView& residual_in, const TensorView& branch, const TensorView& gain,
                      const TensorView& bias);
RowSizes norm_backward(const TensorView& dresidual_in, const TensorView& dgain, const TensorView& dbias,
                       const TensorView& dy, const TensorView& dresidual_out, const TensorView& residual,
                       const TensorView& statistics, const TensorView& gain);

void attention_forward(const TensorView& out, const TensorView& lse, const TensorView& qkv,
                       const AttentionSettings& settings);
void attention_backward(const TensorView& dqkv, const TensorView& dout, const TensorView& out,
                        const TensorView& lse, const TensorView& qkv, const AttentionSettings& settings);
void rope(const TensorView& qkv, const TensorView& table, const AttentionSettings& settings);

RowSizes bias_gelu_forward(const TensorView& y, const TensorView& x, const TensorView& bias);
RowSizes bias_gelu_backward(const TensorView& dx, const TensorView& dbias, const TensorView& dy,
                            const TensorView& x, const TensorView& bias);
// columns: F, half the width of gate_up
RowSizes swiglu_forward(const TensorView& y, const TensorView& gate_up);
RowSizes swiglu_backward(const TensorView& dgate_up, const TensorView& dy, const TensorView& gate_up);
RowSizes bias_backward(const TensorView& dbias, const TensorView& dy);
void add(const TensorView& y, const TensorView& a, const TensorView& b);
RowSizes dropout(const TensorView& y, const TensorView& x, std::int64_t rows_per_sample, const Dropout& site);
void cast(const TensorView& to, const TensorView& from);

RowSizes embedding_forward(const TensorView& x, const TensorView& tokens, const TensorView& table,
                           const TensorView& positions, std::int64_t length);
RowSizes embedding_backward(const TensorView& dtable, const TensorView& dpositions, const TensorView& dx,
                            const TensorView& tokens, std::int64_t length);

RowSizes cross_entropy(const TensorView& losses, const TensorView& logits, const TensorView& targets,
                       const LossSettings& settings);
RowSizes row_maxima(const TensorView& maxima, const TensorView& logits, const LossSettings& settings);
RowSizes exponential_sums(const TensorView& sums, const TensorView& logits, const TensorView& maxima,
                          const TensorView& targets, const LossSettings& settings);
RowSizes finish_cross_entropy(const TensorView& losses, const TensorView& logits, const TensorView& maxima,
                              const TensorView& sums, const TensorView& targets,
                              const LossSettings& settings);
void sum_losses(const TensorView& total, const TensorView& losses);

void sum_squares(const TensorView& bins, const TensorView& gradient);
void finish_norm(const TensorView& scalars, const TensorView& bins);
void adamw(const TensorView& weights, const TensorView& master, const TensorView& m, const TensorView& v,
           const TensorView& gradient, const TensorView& flags, const TensorView& scalars);

// Scratch large enough for `needed` bytes (none needed: may be empty).
void scratch(const char* op, const TensorView& scratch, std::size_t needed);

}  // namespace trainctl::contract
