// Parameters as the whole project names them. Names are logical (q, k, v, gate, up), never packed; a unit is
// the grain of sharding, gathering and recomputation: embedding, each block, head.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainctl/config/job_spec.h"
#include "trainctl/tensor/shape.h"

namespace trainctl {

using UnitId =
    std::int32_t;  // 0: embedding; 1..layers: blocks; layers + 1: head (final norm, output matrix if untied)

// Units [begin, end): what one stage of a pipeline computes in one go.
struct UnitRun {
    UnitId begin = 0;
    UnitId end = 0;

    [[nodiscard]] constexpr bool contains(UnitId unit) const { return begin <= unit && unit < end; }
    constexpr bool operator==(const UnitRun& other) const = default;
};

enum class InitKind { Zero, One, Normal };

struct ParamSpec {
    std::string name;     // for example "blocks.3.attention.q.weight"
    Shape global;         // logical shape; the vocabulary dimension is the logical vocabulary
    Shape padded;         // as allocated: the vocabulary dimension rounded up to 128, else equal to global
    int tensor_dim = -1;  // dimension split over tensor-parallel ranks; -1: replicated
    bool replicated = false;                // the same on every tensor-parallel rank
    bool grad_partial_over_tensor = false;  // gradients must be summed over tensor-parallel ranks
    bool decay = true;
    // This rank (with its data-parallel peers) counts it in the gradient norm and saves it; false: another
    // rank, which holds the same values, does.
    bool primary = true;
    UnitId unit = 0;
    // Which of the rank's model parts writes its gradients; others than 0 exist in an interleaved pipeline.
    int part = 0;
    int group =
        -1;  // members of one fused group (q,k,v; gate,up; their biases) are adjacent and count as one tensor
    InitKind init = InitKind::Normal;
    double init_std = 0.02;
};

// All parameters of a model, ordered by unit, and within a unit in the order backward finishes their
// gradients. Fused groups are adjacent.
std::vector<ParamSpec> model_parameters(const ModelSpec& model);

// Initial value of elements [begin, begin + out.size()) of the flattened *padded* tensor: a pure function of
// (seed, name, global element index); padded rows are 0. Normal by Box-Muller in double over Philox.
void initial_values(const ParamSpec& param, std::uint64_t seed, std::int64_t begin, std::span<float> out);

}  // namespace trainctl
