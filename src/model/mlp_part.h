// Second half of a block: norm, up product (gate and up as one), activation, down product, dropout.
#pragma once

#include "model/linear.h"
#include "model/residual_norm.h"
#include "model/step_context.h"
#include "trainctl/model/architecture.h"
#include "trainctl/model/tensor_axis.h"

namespace trainctl {

struct MlpSaved {
    NormSaved norm;
    // F: this rank's share of the feed-forward width.
    TensorView up;         // Gelu: [M,F] before bias and activation; SwiGlu: [M,2F] = [gate | up]
    TensorView activated;  // [M,F]
};

class MlpPart {
  public:
    MlpPart(const UnitIndex& unit, const ModelSpec& model, const TensorPart& part, NormSettings norm,
            MlpKind kind);

    // The carry's branch becomes the output of this part. What `keep` leaves out is empty in the saved state.
    MlpSaved forward(const StepContext& context, const Weights& weights, Carry& carry, Keep keep) const;
    // Everything that backward needs and nothing more: stops before the last product. Consumes the carry.
    MlpSaved recompute(const StepContext& context, const Weights& weights, Carry& carry) const;
    // Of a state kept at least as Keep::Products. d[residual rows, C]: in, gradient of residual + branch
    // behind this part; out, of the sum in front of it.
    void backward(const StepContext& context, const Weights& weights, const GradView& grads, MlpSaved saved,
                  TensorView d) const;

  private:
    // Norm, up product and activation.
    MlpSaved widen(const StepContext& context, const Weights& weights, Carry& carry, Keep keep) const;
    void activate(const StepContext& context, const Weights& weights, MlpSaved& saved) const;
    // Gradient of `up`, in new memory or in that of dactivated, which is consumed.
    [[nodiscard]] TensorView activate_backward(const StepContext& context, const Weights& weights,
                                               const GradView& grads, const MlpSaved& saved,
                                               TensorView dactivated) const;

    UnitId unit_;
    std::int64_t ffn_;
    MlpKind kind_;
    ResidualNorm norm_;
    Linear up_;
    Linear down_;
};

}  // namespace trainctl
