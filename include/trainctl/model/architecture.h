// The architecture table: what distinguishes the model families, one row each, over shared layers.
#pragma once

#include <string_view>

#include "trainctl/config/job_spec.h"
#include "trainctl/ops/ops.h"

namespace trainctl {

enum class PositionKind {
    Learned,  // a position table added to the token embedding
    Rope,     // queries and keys are rotated by their position in every block
};
enum class MlpKind {
    Gelu,    // down(gelu(up(x)))
    SwiGlu,  // down(silu(gate(x)) * up(x))
};
enum class BiasKind {
    None,
    Everywhere,  // every projection of a block
};

struct ArchitectureRow {
    Architecture architecture = Architecture::Llama;
    std::string_view name;  // as in job files
    NormKind norm = NormKind::RmsNorm;
    PositionKind positions = PositionKind::Rope;
    MlpKind mlp = MlpKind::SwiGlu;
    BiasKind biases = BiasKind::None;
};

// The row of a family; valid for the life of the process.
const ArchitectureRow& architecture_row(Architecture architecture);

// Exit::Usage, naming the numbers, if the dimensions cannot make a model of that family.
void check_model(const ModelSpec& model);

}  // namespace trainctl
