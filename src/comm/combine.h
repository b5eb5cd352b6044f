// Elementwise combination of the ranks' contributions, always in rank order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "trainctl/comm/communicator.h"

namespace trainctl {

// out[i] (=, +=) reduce over sources[0][i], sources[1][i], ... in this order, for `count` elements. F32, BF16
// and F16 are added in F32 and rounded once; F64, I64, I32 in their own type (integers wrap). `out` may be
// one of the sources. Dtypes: `in` and `out` equal, or BF16 or F16 into F32; anything else is Exit::Internal.
void combine(std::byte* out, DType out_dtype, Into into, std::span<const std::byte* const> sources, DType in,
             Reduce reduce, std::int64_t count);

// Exit::Internal unless combine() accepts the pair; asked when an operation is issued.
void check_combinable(DType in, DType out);

}  // namespace trainctl
