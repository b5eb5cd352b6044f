// Parameters as the whole project names them. Names are logical (q, k, v, gate, up), never packed; a unit is
// the grain of sharding, gathering and recomputation: embedding, each block, head.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainctl/config/job_spec.h"
#include "trainctl/model/named_slice.h"
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
    Shape padded;         // as allocated on this rank: its part, the vocabulary dimension being padded to 128
    int tensor_dim = -1;  // dimension split over tensor-parallel ranks; -1: on every rank
    std::int64_t tensor_grain = 1;  // that dimension is cut at multiples of it only (a head)
    std::int64_t tensor_begin = 0;  // where this rank's part begins along it
    int tensor_replicas = 1;        // neighbouring tensor-parallel ranks that hold this part
    // Norms: their gradient is a sum over the rows of the residual stream that are on the rank.
    bool of_residual_rows = false;
    bool grad_partial_over_tensor = false;  // gradients must be summed over the replicas
    bool decay = true;
    // This rank (with its data-parallel peers) counts it in the gradient norm and saves it; false: another
    // replica does.
    bool primary = true;
    UnitId unit = 0;
    // Which of the rank's model parts writes its gradients; others than 0 exist in an interleaved pipeline.
    int part = 0;
    int group =
        -1;  // members of one fused group (q,k,v; gate,up; their biases) are adjacent and count as one tensor
    InitKind init = InitKind::Normal;
    double init_std = 0.02;
};

// The rank's part in the logical tensor; its elements are the first ones of the allocated ones, because only
// the first dimension is ever padded.
Box local_box(const ParamSpec& param);

// All parameters of a model, ordered by unit, and within a unit in the order backward finishes their
// gradients. Fused groups are adjacent. Whole: see tensor_partition.h for the parts of one rank.
std::vector<ParamSpec> model_parameters(const ModelSpec& model);

// Initial value of elements [begin, begin + out.size()) of the flattened tensor *as allocated*: a pure
// function of (seed, name, global element index); padded rows are 0. Normal by Box-Muller in double over
// Philox.
void initial_values(const ParamSpec& param, std::uint64_t seed, std::int64_t begin, std::span<float> out);

}  // namespace trainctl
