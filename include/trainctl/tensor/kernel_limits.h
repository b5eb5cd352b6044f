// Limits of a backend's kernels that a job can break. Here, where both the checks of a job and the backends
// see them, so that a job is refused before it starts.
#pragma once

#include <cstdint>

namespace trainctl {

// cuda: elements of an attention head that its kernels hold.
inline constexpr std::int64_t cuda_largest_head = 256;

}  // namespace trainctl
