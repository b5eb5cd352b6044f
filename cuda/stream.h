// What this backend's ops see of a Stream.
#pragma once

#include <cuda_runtime_api.h>

#include "trainctl/device/device.h"

namespace trainctl::cuda {

// The stream's handle; Exit::Internal if it belongs to another kind of device.
cudaStream_t handle(Stream& stream);

}  // namespace trainctl::cuda
