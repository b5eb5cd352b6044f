// Which numbers of ranks can share a model's matrices. Pure arithmetic.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainctl/config/job_spec.h"

namespace trainctl {

struct TensorMisfit {
    std::string key;   // of the dimension
    std::string what;  // "model.heads 6 is not a multiple of parallel.tensor_parallel_size 4"
};

// Why `size` ranks cannot share the heads, feed-forward width and padded vocabulary; empty: they can. A
// key/value head is held by one rank, or by the same number of ranks each.
std::vector<TensorMisfit> tensor_misfits(const ModelSpec& model, std::int64_t size);

// What to do about a misfit: "sizes that fit this model: 1, 2, 4; or change its shape".
std::string tensor_size_hint(const ModelSpec& model);

}  // namespace trainctl
