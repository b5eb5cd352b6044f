// The ops backends in this build.
#pragma once

#include <memory>

#include "trainctl/device/cpu_device.h"
#include "trainctl/device/sim_device.h"
#include "trainctl/ops/ops.h"

namespace trainctl {

// F32, BF16 and F16 compute, kernels of device.isa(), device.threads() threads. The device must outlive it.
std::unique_ptr<OpsBackend> make_cpu_ops(CpuDevice& device);

// F32, BF16 and F16 on a device made by make_cuda_device, which must outlive it; belongs to that device's
// thread. In a build without CUDA there is no such device.
std::unique_ptr<OpsBackend> make_cuda_ops(Device& device);

// Computes nothing: checks shapes and dtypes, counts FLOPs and bytes on the device's clocks. scratch_bytes()
// answers are those of `planned`, the backend whose run is being planned.
std::unique_ptr<OpsBackend> make_sim_ops(SimDevice& device, Ops planned);

}  // namespace trainctl
