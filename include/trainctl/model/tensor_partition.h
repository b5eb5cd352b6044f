// Which part of every parameter a tensor-parallel rank holds. Pure data: no memory, no communication.
#pragma once

#include <cstdint>
#include <vector>

#include "trainctl/config/job_spec.h"
#include "trainctl/model/param.h"
#include "trainctl/model/tensor_axis.h"

namespace trainctl {

// Exit::Usage with the arithmetic if there are tensor_misfits().
void check_tensor_size(const ModelSpec& model, int size);

// model_parameters() as one rank holds them: same names, order and global shapes, local allocated shapes.
//
// Projections into a block are split by outputs (queries, keys and values by heads), those back by inputs,
// the vocabulary by padded rows; norms, positions and biases of the projections back are on every rank. With
// fewer key/value heads than ranks, size / kv_heads neighbouring ranks hold the same one. All ranks' shapes
// are equal, so all have the same layout of units.
std::vector<ParamSpec> tensor_parameters(const ModelSpec& model, const TensorPart& part);

// The attention heads of one rank. Its query heads read its key/value heads.
struct HeadPart {
    std::int64_t heads = 0;
    std::int64_t kv_heads = 0;
    std::int64_t first_head = 0;  // global index of its first query head
};
HeadPart head_part(const ModelSpec& model, const TensorPart& part);

}  // namespace trainctl
