// What the families of this backend demand beyond the contract of every backend.
#pragma once

#include "trainctl/tensor/dtype.h"

namespace trainctl::cuda {

// Exit::Internal unless kernels exist for it (F32, BF16, F16).
void require_compute(const char* op, DType dtype);

}  // namespace trainctl::cuda
