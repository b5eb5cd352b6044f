// Final norm, output matrix and loss. In training forward, loss and backward of the head are one step over
// chunks of rows, so that logits of the whole micro-batch never exist.
#pragma once

#include "model/residual_norm.h"
#include "model/step_context.h"
#include "trainctl/config/job_spec.h"

namespace trainctl {

// The output matrix [V,C]: of the head unit, or the embedding's token table when tied. V: this rank's rows.
struct OutputMatrix {
    TensorView weight;
    TensorView gradient;  // empty while evaluating
    Into into = Into::Overwrite;
};

// Where the sum of the losses goes.
struct LossTarget {
    TensorView sum;  // F64[1]
    Into into = Into::Overwrite;
};

class Head {
  public:
    // chunk_rows: rows of logits that exist at once; 0: as many as default_chunk_rows allows.
    Head(const std::vector<ParamSpec>& params, const ModelSpec& model, std::int64_t chunk_rows);

    // Consumes the carry; writes the gradients of the output matrix and of the final norm and adds the
    // losses. Returns d[residual rows, C], the gradient of residual + branch behind the last block, for the
    // caller to release.
    [[nodiscard]] TensorView train(const StepContext& context, const Weights& weights, const GradView& grads,
                                   const OutputMatrix& output, Carry& carry, float gradient_scale,
                                   const LossTarget& loss) const;
    void evaluate(const StepContext& context, const Weights& weights, const OutputMatrix& output,
                  Carry& carry, const LossTarget& loss) const;

    // Place of the output matrix in the head unit; no_place when tied.
    [[nodiscard]] int output_place() const { return output_; }

  private:
    // Of logits with `columns` columns.
    [[nodiscard]] std::int64_t rows_per_chunk(const StepContext& context, std::int64_t columns) const;
    // Losses[count] of rows [begin, begin + count) and, in training, their share of the output matrix's
    // gradient; y's rows are then replaced by their own gradient.
    void chunk(const StepContext& context, const OutputMatrix& output, Into into, TensorView y,
               TensorView losses, TensorView targets, const LossSettings& settings) const;
    void all_chunks(const StepContext& context, const OutputMatrix& output, TensorView y,
                    const LossTarget& loss, const LossSettings& settings) const;

    std::int64_t vocab_size_;
    std::int64_t chunk_rows_;
    int output_;
    ResidualNorm norm_;
};

// At most 1024 rows (weight gradients are summed in chunks of that size anyway) and 256 MiB of logits, but at
// least 128 rows, so that the pass over the gradient of the output matrix stays a small part of its product.
std::int64_t default_chunk_rows(std::int64_t columns, DType dtype);

}  // namespace trainctl
