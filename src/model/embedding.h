// Token (and learned position) embedding: the start of the residual stream.
#pragma once

#include "model/step_context.h"
#include "model/unit_index.h"
#include "trainctl/model/param_source.h"

namespace trainctl {

class Embedding {
  public:
    explicit Embedding(const std::vector<ParamSpec>& params);

    [[nodiscard]] Carry forward(const StepContext& context, const Weights& weights) const;
    // Consumes d[residual rows, C]. `table_into`: Accumulate where a tied head has written the table's
    // gradient before.
    void backward(const StepContext& context, const GradView& grads, Into table_into, TensorView d) const;

    // The token table [V,C] of the unit's weights or gradients; V: this rank's rows of it.
    [[nodiscard]] TensorView table(const UnitView& unit) const { return unit.tensor(tokens_); }

  private:
    [[nodiscard]] TensorView positions(const UnitView& unit) const {
        return positions_ == no_place ? TensorView{} : unit.tensor(positions_);
    }

    int tokens_;
    int positions_;
};

}  // namespace trainctl
