// All rows of a residual-stream matrix, as matrix products read and write them.
#pragma once

#include <optional>

#include "model/step_context.h"

namespace trainctl {

enum class RowContent : std::uint8_t {
    Gathered,   // the rows that the ranks hold
    Unwritten,  // garbage: the products will write them
};

// Where rows are sharded, memory of its own for all ranks' rows (padding behind the last one included), held
// as long as this object; else `local` itself, which outlives it.
class WholeRows {
  public:
    // local[context.residual_rows(), C]
    WholeRows(const StepContext& context, TensorView local, RowContent content);

    // [context.rows(), C]
    [[nodiscard]] TensorView view() const { return whole_.rows(0, context_.rows()); }
    // view() holds this rank's part of a sum over the tensor-parallel ranks: the local rows become the sum.
    void sum_into_local() const;

  private:
    const StepContext& context_;
    TensorView local_;
    std::optional<ArenaScope> memory_;
    TensorView whole_;
};

}  // namespace trainctl
