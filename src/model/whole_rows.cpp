#include "model/whole_rows.h"

namespace trainctl {

WholeRows::WholeRows(const StepContext& context, TensorView local, RowContent content)
    : context_(context), local_(local), whole_(local) {
    const TensorRanks& tensor = context.tensor;
    if (!tensor.shards_rows()) return;
    memory_.emplace(context.arena, Shape{local.shape[0] * tensor.part().size, local.shape[1]}, local.dtype);
    whole_ = memory_->view();
    if (content == RowContent::Gathered) tensor.all_gather(context.stream, whole_, local_);
}

void WholeRows::sum_into_local() const {
    const TensorRanks& tensor = context_.tensor;
    if (tensor.alone()) return;
    if (!tensor.shards_rows()) {
        tensor.all_reduce(context_.stream, local_, Reduce::Sum);
        return;
    }
    // No product writes the padding; zero rows stay zero through every layer and add nothing to a gradient.
    const std::int64_t padding = whole_.shape[0] - context_.rows();
    if (padding > 0)
        context_.ops.elementwise.fill_zero(context_.stream, whole_.rows(context_.rows(), padding));
    tensor.reduce_scatter(context_.stream, local_, whole_);
}

}  // namespace trainctl
