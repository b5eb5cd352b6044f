#include "trainctl/model/tensor_partition.h"

#include <fmt/format.h>

#include <algorithm>

namespace trainctl {
namespace {

void require_share(std::int64_t whole, int size, const char* what) {
    if (whole % size == 0) return;
    fail(Exit::Usage,
         fmt::format("parallel.tensor_parallel_size must divide {}, but {} / {} leaves {}: choose "
                     "a divisor of {}",
                     what, whole, size, whole % size, whole));
}

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
    if (size < 1)
        fail(Exit::Usage, fmt::format("parallel.tensor_parallel_size must be at least 1, but is {}", size));
    require_share(model.heads, size, "model.heads");
    require_share(model.ffn_size, size, "model.ffn_size");
    require_share(model.padded_vocab_size(), size, "the padded vocabulary");
    if (model.kv_heads % size != 0 && size % model.kv_heads != 0) {
        fail(Exit::Usage,
             fmt::format("parallel.tensor_parallel_size {} and model.kv_heads {} do not fit: one "
                         "must be a multiple of the other (a key/value head is held by one rank, "
                         "or by the same number of ranks each)",
                         size, model.kv_heads));
    }
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
