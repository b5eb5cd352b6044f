// A dense layer whose weight is one parameter or a fused group (q,k,v; gate,up): one product for all members.
#pragma once

#include <string>
#include <vector>

#include "model/step_context.h"
#include "model/unit_index.h"
#include "trainctl/model/param_source.h"

namespace trainctl {

enum class BiasUse {
    InProduct,  // added by the product, if the layer has a bias
    InSum,      // the products of all tensor-parallel ranks are summed: the first rank's adds it
    ByCaller,   // a fused activation adds it and computes its gradient
};

class Linear {
  public:
    // Members by name, for example {"attention.q", "attention.k", "attention.v"}, in the order of the group.
    Linear(const UnitIndex& unit, const std::vector<std::string>& members, BiasUse bias_use);

    // y[M,N] = x[M,K] W^T (+ bias). Sizes are those of this rank's part of the layer.
    void forward(const StepContext& context, const Weights& weights, TensorView y, TensorView x) const;
    // Gradients of bias (unless ByCaller) and weight; x may be reused afterwards.
    void backward_parameters(const StepContext& context, const GradView& grads, TensorView dy,
                             TensorView x) const;
    // dx[M,K] = dy[M,N] W
    void backward_input(const StepContext& context, const Weights& weights, TensorView dx,
                        TensorView dy) const;

    [[nodiscard]] TensorView weight(const UnitView& unit) const { return unit.fused(weight_, members_); }
    // Empty if the layer has none.
    [[nodiscard]] TensorView bias(const UnitView& unit) const {
        return bias_ == no_place ? TensorView{} : unit.fused(bias_, members_);
    }

  private:
    [[nodiscard]] bool adds_bias(const StepContext& context) const;

    int members_;
    int weight_;
    int bias_;
    BiasUse bias_use_;
};

}  // namespace trainctl
