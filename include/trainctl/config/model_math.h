// Exact parameter counts and model FLOPs. Pure arithmetic on the logical vocabulary: no padding, no
// recomputation. Results are exact integers up to 2^53.
#pragma once

#include <cstdint>

#include "trainctl/config/job_spec.h"

namespace trainctl {

// Every trained number once: a tied head is not counted again.
std::int64_t parameter_count(const ModelSpec& model);
// Rows of the learned position table times hidden size; 0 for rotary positions.
std::int64_t position_parameters(const ModelSpec& model);
// Parameters that take part in matrix products for every token: all, without the position table, and without
// the input embedding (a lookup) unless it is also the head.
std::int64_t active_parameters(const ModelSpec& model);

// Forward and backward of one token at this sequence length, attention counted causally (half of the square):
// 6 x active parameters + 6 x layers x heads x head_dim x T. The basis of every MFU that trainctl prints.
double flops_per_token(const ModelSpec& model, std::int64_t sequence_length);
// The same with the full attention square, 12 x ...: comparable with PaLM (arXiv:2204.02311) and with
// trainers that follow it.
double palm_flops_per_token(const ModelSpec& model, std::int64_t sequence_length);

}  // namespace trainctl
