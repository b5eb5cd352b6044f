// Dropout of residual-stream matrices: the embedding, and the ends of branches (attention output, MLP
// output).
#pragma once

#include <optional>

#include "model/step_context.h"

namespace trainctl {

// branch[residual rows, C] under the site's mask, in place.
inline void drop_branch(const StepContext& context, TensorView branch, Dropout site) {
    if (site.probability == 0.0F) return;
    context.ops.elementwise.dropout(context.stream, branch, branch, context.micro.length, site);
}

// Gradient of a branch before its dropout, from d[residual rows, C], which also stays the gradient of the
// residual: d itself without dropout, else a masked copy that lives as long as this object.
class BranchGradient {
  public:
    BranchGradient(const StepContext& context, TensorView d, Dropout site) : view_(d) {
        if (site.probability == 0.0F) return;
        copy_.emplace(context.arena, d.shape, d.dtype);
        view_ = copy_->view();
        context.ops.elementwise.dropout(context.stream, view_, d, context.micro.length, site);
    }
    [[nodiscard]] TensorView view() const { return view_; }

  private:
    std::optional<ArenaScope> copy_;
    TensorView view_;
};

}  // namespace trainctl
