#include "cuda/ops/require.h"

#include <fmt/format.h>

#include "trainctl/base/error.h"

namespace trainctl::cuda {

void require_compute(const char* op, DType dtype) {
    if (dtype == DType::F32 || dtype == DType::BF16 || dtype == DType::F16) return;
    fail(Exit::Internal, fmt::format("{}: the cuda backend computes in f32, bf16 and f16, not in {}; choose "
                                     "precision.compute accordingly",
                                     op, dtype_name(dtype)));
}

}  // namespace trainctl::cuda
