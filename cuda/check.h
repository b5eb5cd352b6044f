// Every answer of the CUDA libraries is looked at. Compiled by nvcc too: no fmt here.
#pragma once

#include <cuda_runtime_api.h>

#include "trainctl/base/error.h"

namespace trainctl::cuda {

// Returns on cudaSuccess. Otherwise Exit::Resource: `what` (a literal: the call or the kernel), CUDA's name
// and text of the error, the device, and the place of the call. A sticky error (the context is lost) says
// that the process must end.
void check(cudaError_t code, const char* what, Where where = Where::here());

}  // namespace trainctl::cuda
