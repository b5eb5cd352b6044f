// What this backend's ops see of a Stream.
#pragma once

#include <cuda_runtime_api.h>

#include "trainctl/device/device.h"

namespace trainctl::cuda {

// The stream's handle, for work behind everything that was asked of the stream so far: calls that were
// gathered are issued first. Use it at once. Exit::Internal if the stream belongs to another kind of device.
cudaStream_t handle(Stream& stream);

class SectionGraphs;
// What gathers the calls on this stream; nullptr if they are issued at once.
SectionGraphs* gathered_by(Stream& stream);

}  // namespace trainctl::cuda
