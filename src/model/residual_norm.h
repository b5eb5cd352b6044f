// The norm in front of every layer part: adds the branch that waits in the carry, then normalises the sum.
#pragma once

#include <string>

#include "model/keep.h"
#include "model/step_context.h"
#include "model/unit_index.h"
#include "trainctl/model/param_source.h"

namespace trainctl {

// Keep::Input keeps `residual` only, Keep::Products also `statistics`; with Keep::Nothing the residual stays
// the carry's. The reader of y releases it when it is not kept.
struct NormSaved {
    TensorView y;           // [M,C] normalised
    TensorView residual;    // [M,C] the sum that was normalised
    TensorView statistics;  // [M,2]
};

class ResidualNorm {
  public:
    // `name`: "attention_norm", "mlp_norm" or "norm".
    ResidualNorm(const UnitIndex& unit, const std::string& name, NormSettings settings);

    // Consumes the carry's branch; carry.residual becomes the sum.
    NormSaved forward(const StepContext& context, const Weights& weights, Carry& carry, Keep keep) const;
    // Makes y again, which was not kept, from residual; the statistics are written again with the same bits.
    void repeat(const StepContext& context, const Weights& weights, NormSaved& saved) const;
    // d[M,C]: gradient of the sum from above (d_above empty: none), in place plus what comes through the
    // norm. Releases residual and statistics; the caller still owns saved.y (whose memory may hold dy).
    void backward(const StepContext& context, const Weights& weights, const GradView& grads,
                  const NormSaved& saved, TensorView dy, TensorView d, TensorView d_above) const;

  private:
    void normalise(const StepContext& context, const Weights& weights, const NormSaved& saved,
                   TensorView residual_in, TensorView branch) const;

    int gain_;
    int bias_;
    NormSettings settings_;
};

}  // namespace trainctl
