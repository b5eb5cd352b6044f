// The norm in front of every layer part: adds the branch that waits in the carry, then normalises the sum.
#pragma once

#include <string>

#include "model/step_context.h"
#include "model/unit_index.h"
#include "trainctl/model/param_source.h"

namespace trainctl {

// While training all three live until backward; while evaluating only y, and residual as part of the carry.
struct NormSaved {
    TensorView y;           // [M,C] normalised
    TensorView residual;    // [M,C] the sum that was normalised
    TensorView statistics;  // [M,2]; empty while evaluating
};

class ResidualNorm {
  public:
    // `name`: "attention_norm", "mlp_norm" or "norm".
    ResidualNorm(const UnitIndex& unit, const std::string& name, NormSettings settings);

    // Consumes the carry's branch; carry.residual becomes the sum.
    NormSaved forward(const StepContext& context, const Weights& weights, Carry& carry) const;
    // d[M,C]: gradient of the sum from above (d_above empty: none), in place plus what comes through the
    // norm. Releases residual and statistics; the caller still owns saved.y (whose memory may hold dy).
    void backward(const StepContext& context, const Weights& weights, const GradView& grads,
                  const NormSaved& saved, TensorView dy, TensorView d, TensorView d_above) const;

  private:
    int gain_;
    int bias_;
    NormSettings settings_;
};

}  // namespace trainctl
