// The ops backends in this build.
#pragma once

#include <memory>
#include <set>

#include "trainctl/device/cpu_device.h"
#include "trainctl/device/sim_device.h"
#include "trainctl/ops/ops.h"
#include "trainctl/ops/product_plans.h"

namespace trainctl {

// F32, BF16 and F16 compute, kernels of device.isa(), device.threads() threads. The device must outlive it.
std::unique_ptr<OpsBackend> make_cpu_ops(CpuDevice& device);

// F32, BF16 and F16 on a device made by make_cuda_device, which must outlive it; belongs to that device's
// thread. In a build without CUDA there is no such device.
std::unique_ptr<OpsBackend> make_cuda_ops(Device& device, F32Products f32);

// Computes nothing: checks shapes and dtypes, counts FLOPs and bytes on the device's clocks. scratch_bytes()
// answers are those of `planned`, the backend whose run is being planned. Every kind of matrix product that
// is asked for is added to `products` (if given), which must outlive the backend.
std::unique_ptr<OpsBackend> make_sim_ops(SimDevice& device, Ops planned,
                                         std::set<Product>* products = nullptr);

}  // namespace trainctl
