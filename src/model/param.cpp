#include "trainctl/model/param.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "trainctl/model/architecture.h"

namespace trainctl {
namespace {

constexpr double init_std = 0.02;

// Appends the parameters of one unit; the caller names them in the order backward finishes their gradients.
class UnitBuilder {
  public:
    UnitBuilder(std::vector<ParamSpec>& params, UnitId unit, std::string prefix)
        : params_(params), unit_(unit), prefix_(std::move(prefix)) {}

    // A weight [out, in] of a projection. tensor_dim 0 splits its outputs, 1 its inputs.
    ParamSpec& matrix(std::string_view name, std::int64_t out, std::int64_t in, int tensor_dim) {
        return add(name, Shape{out, in}, tensor_dim);
    }
    // A table or output matrix with one row per token of the vocabulary.
    void vocabulary(std::string_view name, const ModelSpec& model) {
        ParamSpec& param = add(name, Shape{model.vocab_size, model.hidden_size}, 0);
        param.padded[0] = model.padded_vocab_size();
    }
    // A bias or gain; never decayed.
    ParamSpec& vector(std::string_view name, std::int64_t size, int tensor_dim, InitKind init) {
        ParamSpec& param = add(name, Shape{size}, tensor_dim);
        param.decay = false;
        param.init = init;
        return param;
    }
    void norm(const std::string& name, const ArchitectureRow& row, std::int64_t size) {
        vector(name + ".weight", size, -1, InitKind::One).of_residual_rows = true;
        if (row.norm == NormKind::LayerNorm)
            vector(name + ".bias", size, -1, InitKind::Zero).of_residual_rows = true;
    }
    // Marks the last `members` parameters as one fused group, to be cut at multiples of `grain`.
    void fuse(int members, std::int64_t grain = 1) {
        const int group = groups_++;
        for (int i = 0; i < members; ++i) {
            ParamSpec& param = params_[params_.size() - 1 - static_cast<std::size_t>(i)];
            param.group = group;
            param.tensor_grain = grain;
        }
    }

  private:
    ParamSpec& add(std::string_view name, const Shape& shape, int tensor_dim) {
        ParamSpec param;
        param.name = prefix_ + std::string(name);
        param.global = shape;
        param.padded = shape;
        param.tensor_dim = tensor_dim;
        param.unit = unit_;
        param.init_std = init_std;
        return params_.emplace_back(std::move(param));
    }

    std::vector<ParamSpec>& params_;
    UnitId unit_;
    std::string prefix_;
    int groups_ = 0;
};

void add_mlp(UnitBuilder& unit, const ModelSpec& model, const ArchitectureRow& row, double residual_std) {
    const bool biases = row.biases == BiasKind::Everywhere;
    if (biases) unit.vector("mlp.down.bias", model.hidden_size, -1, InitKind::Zero);
    unit.matrix("mlp.down.weight", model.hidden_size, model.ffn_size, 1).init_std = residual_std;
    if (row.mlp == MlpKind::SwiGlu) {
        if (biases) {
            unit.vector("mlp.gate.bias", model.ffn_size, 0, InitKind::Zero);
            unit.vector("mlp.up.bias", model.ffn_size, 0, InitKind::Zero);
            unit.fuse(2);
        }
        unit.matrix("mlp.gate.weight", model.ffn_size, model.hidden_size, 0);
        unit.matrix("mlp.up.weight", model.ffn_size, model.hidden_size, 0);
        unit.fuse(2);
    } else {
        if (biases) unit.vector("mlp.up.bias", model.ffn_size, 0, InitKind::Zero);
        unit.matrix("mlp.up.weight", model.ffn_size, model.hidden_size, 0);
    }
    unit.norm("mlp_norm", row, model.hidden_size);
}

void add_attention(UnitBuilder& unit, const ModelSpec& model, const ArchitectureRow& row,
                   double residual_std) {
    const bool biases = row.biases == BiasKind::Everywhere;
    const std::int64_t queries = model.heads * model.head_dim;
    const std::int64_t keys = model.kv_heads * model.head_dim;
    if (biases) unit.vector("attention.output.bias", model.hidden_size, -1, InitKind::Zero);
    unit.matrix("attention.output.weight", model.hidden_size, queries, 1).init_std = residual_std;
    if (biases) {
        unit.vector("attention.q.bias", queries, 0, InitKind::Zero);
        unit.vector("attention.k.bias", keys, 0, InitKind::Zero);
        unit.vector("attention.v.bias", keys, 0, InitKind::Zero);
        unit.fuse(3, model.head_dim);
    }
    unit.matrix("attention.q.weight", queries, model.hidden_size, 0);
    unit.matrix("attention.k.weight", keys, model.hidden_size, 0);
    unit.matrix("attention.v.weight", keys, model.hidden_size, 0);
    unit.fuse(3, model.head_dim);
    unit.norm("attention_norm", row, model.hidden_size);
}

}  // namespace

Box local_box(const ParamSpec& param) {
    Box box = whole_box(param.global);
    if (param.tensor_dim >= 0) box.offset[param.tensor_dim] = param.tensor_begin;
    for (int dim = 0; dim < param.global.rank(); ++dim) {
        const std::int64_t behind = std::max<std::int64_t>(param.global[dim] - box.offset[dim], 0);
        box.extent[dim] = std::min(param.padded[dim], behind);
        invariant(dim == 0 || box.extent[dim] == param.padded[dim],
                  "only the first dimension of a tensor is padded");
    }
    return box;
}

std::vector<ParamSpec> model_parameters(const ModelSpec& model) {
    check_model(model);
    const ArchitectureRow& row = architecture_row(model.architecture);
    const double residual_std = init_std / std::sqrt(2.0 * static_cast<double>(model.layers));
    std::vector<ParamSpec> params;

    UnitBuilder embedding(params, 0, "embedding.");
    embedding.vocabulary("tokens.weight", model);
    if (row.positions == PositionKind::Learned) {
        embedding.matrix("positions.weight", model.max_sequence_length, model.hidden_size, -1);
    }
    for (std::int64_t layer = 0; layer < model.layers; ++layer) {
        UnitBuilder block(params, static_cast<UnitId>(layer + 1), "blocks." + std::to_string(layer) + ".");
        add_mlp(block, model, row, residual_std);
        add_attention(block, model, row, residual_std);
    }
    UnitBuilder head(params, static_cast<UnitId>(model.layers + 1), "head.");
    if (!model.tie_embeddings) head.vocabulary("output.weight", model);
    head.norm("norm", row, model.hidden_size);
    return params;
}

}  // namespace trainctl
