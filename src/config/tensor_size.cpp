#include "trainctl/config/tensor_size.h"

#include <fmt/format.h>

namespace trainctl {

std::vector<TensorMisfit> tensor_misfits(const ModelSpec& model, std::int64_t size) {
    const std::string name = fmt::format("parallel.tensor_parallel_size {}", size);
    if (size < 1) return {{"parallel.tensor_parallel_size", name + " is less than 1"}};
    std::vector<TensorMisfit> misfits;
    if (model.heads % size != 0)
        misfits.push_back(
            {"model.heads", fmt::format("model.heads {} is not a multiple of {}", model.heads, name)});
    if (model.kv_heads != 0 && model.kv_heads % size != 0 && size % model.kv_heads != 0)
        misfits.push_back(
            {"model.kv_heads", fmt::format("model.kv_heads {} is neither a multiple nor a divisor of {}",
                                           model.kv_heads, name)});
    if (model.ffn_size % size != 0)
        misfits.push_back({"model.ffn_size",
                           fmt::format("model.ffn_size {} is not a multiple of {}", model.ffn_size, name)});
    if (model.padded_vocab_size() % size != 0)
        misfits.push_back(
            {"model.vocab_size", fmt::format("model.vocab_size {}, padded to {}, is not a multiple of {}",
                                             model.vocab_size, model.padded_vocab_size(), name)});
    return misfits;
}

std::string tensor_size_hint(const ModelSpec& model) {
    std::string sizes;
    for (std::int64_t size = 1; size <= model.heads; ++size)
        if (model.heads % size == 0 && tensor_misfits(model, size).empty())
            sizes += fmt::format("{}{}", sizes.empty() ? "" : ", ", size);
    if (sizes.empty()) return "change one of them";
    return fmt::format("sizes that fit this model: {}; or change its shape", sizes);
}

}  // namespace trainctl
