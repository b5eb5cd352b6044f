#include "trainctl/model/architecture.h"

#include <fmt/format.h>

#include <array>

#include "trainctl/base/error.h"

namespace trainctl {
namespace {

constexpr std::array<ArchitectureRow, 2> table{{
    {Architecture::Gpt2, "gpt2", NormKind::LayerNorm, PositionKind::Learned, MlpKind::Gelu,
     BiasKind::Everywhere},
    {Architecture::Llama, "llama", NormKind::RmsNorm, PositionKind::Rope, MlpKind::SwiGlu, BiasKind::None},
}};

void require_positive(std::int64_t value, std::string_view key) {
    if (value > 0) return;
    fail(Exit::Usage,
         fmt::format("model.{} must be at least 1, but is {}: set it or choose a model.preset", key, value));
}

}  // namespace

const ArchitectureRow& architecture_row(Architecture architecture) {
    for (const ArchitectureRow& row : table) {
        if (row.architecture == architecture) return row;
    }
    fail(Exit::Internal, "architecture without a row in the architecture table");
}

void check_model(const ModelSpec& model) {
    require_positive(model.layers, "layers");
    require_positive(model.hidden_size, "hidden_size");
    require_positive(model.heads, "heads");
    require_positive(model.kv_heads, "kv_heads");
    require_positive(model.head_dim, "head_dim");
    require_positive(model.ffn_size, "ffn_size");
    require_positive(model.vocab_size, "vocab_size");
    const ArchitectureRow& row = architecture_row(model.architecture);
    if (model.heads % model.kv_heads != 0) {
        fail(Exit::Usage, fmt::format("model.kv_heads must divide model.heads, but {} does not divide {}: "
                                      "choose a divisor, or kv_heads = heads",
                                      model.kv_heads, model.heads));
    }
    if (row.positions == PositionKind::Rope && model.head_dim % 2 != 0) {
        fail(Exit::Usage, fmt::format("rotary positions need an even model.head_dim, but it is {}: change "
                                      "head_dim, or hidden_size / heads",
                                      model.head_dim));
    }
    if (row.positions == PositionKind::Learned) {
        require_positive(model.max_sequence_length, "max_sequence_length");
    }
    if (!(model.dropout >= 0.0 && model.dropout < 1.0)) {
        fail(Exit::Usage, fmt::format("model.dropout must be in [0, 1), but is {}", model.dropout));
    }
}

}  // namespace trainctl
