#include "trainctl/model/tensor_partition.h"

#include <fmt/format.h>

#include <algorithm>

#include "trainctl/config/tensor_size.h"

namespace trainctl {
namespace {

// This rank's part of a parameter that is split.
void take_part(ParamSpec& param, const TensorPart& part) {
    std::int64_t& extent = param.padded[param.tensor_dim];
    const std::int64_t grains = extent / param.tensor_grain;
    param.tensor_replicas = grains < part.size ? static_cast<int>(part.size / grains) : 1;
    const std::int64_t holders = part.size / param.tensor_replicas;
    invariant(grains % holders == 0, "a parameter that the tensor-parallel ranks cannot share evenly");
    extent = grains / holders * param.tensor_grain;
    param.tensor_begin = part.rank / param.tensor_replicas * extent;
}

}  // namespace

void check_tensor_size(const ModelSpec& model, int size) {
    const std::vector<TensorMisfit> misfits = tensor_misfits(model, size);
    if (!misfits.empty())
        fail(Exit::Usage, fmt::format("{}; {}", misfits.front().what, tensor_size_hint(model)));
}

std::vector<ParamSpec> tensor_parameters(const ModelSpec& model, const TensorPart& part) {
    std::vector<ParamSpec> params = model_parameters(model);
    check_tensor_size(model, part.size);
    invariant(part.rank >= 0 && part.rank < part.size, "rank outside the tensor axis");
    for (ParamSpec& param : params) {
        const bool split = param.tensor_dim >= 0;
        if (split) {
            take_part(param, part);
        } else {
            param.tensor_replicas = part.size;
        }
        // Replicas of a split tensor see different query heads; those of a norm different rows, if rows are
        // sharded. Everything else that is held several times is computed from all rows on every rank.
        const bool partial = split || (param.of_residual_rows && part.residual == ResidualRows::Sharded);
        param.grad_partial_over_tensor = partial && param.tensor_replicas > 1;
        param.primary = part.rank % param.tensor_replicas == 0;
    }
    return params;
}

HeadPart head_part(const ModelSpec& model, const TensorPart& part) {
    const std::int64_t heads = model.heads / part.size;
    return {heads, std::max<std::int64_t>(model.kv_heads / part.size, 1), part.rank * heads};
}

}  // namespace trainctl
