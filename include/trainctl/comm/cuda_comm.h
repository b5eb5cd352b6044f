// Communicators between ranks whose tensors are on cuda devices.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "trainctl/comm/world.h"
#include "trainctl/device/cpu_device.h"

namespace trainctl {

enum class CudaTransport : std::uint8_t {
    Nccl,  // between GPUs; one rank per GPU
    Host,  // through pinned host memory and the host's communicators: also several ranks on one GPU
};

struct CudaMeshOptions {
    CudaTransport transport = CudaTransport::Nccl;
    // Nccl: a message that makes no progress for so long has failed.
    double timeout_s = 600.0;
    // Nccl: what has happened, once, on a thread of its own, when other ranks or the network failed. Expected
    // to end the process (World::abort): streams may wait for ever.
    std::function<void(const Error&)> on_failure;
};

// The same axes for tensors on `device`. Takes over the host's communicators, which carry the messages (Host)
// or bring the ranks together (Nccl). Collective over the mesh's world. Both devices must outlive the mesh;
// `host` is the one its communicators were made with.
Mesh make_cuda_mesh(Mesh host_mesh, Device& device, CpuDevice& host, const CudaMeshOptions& options);

// Has NCCL add in one order whatever it measures, so that runs can be repeated to the bit: sets NCCL_ALGO and
// NCCL_PROTO unless the user did. Before any thread is started.
void pin_nccl_order();

// A line for the log about the order in which NCCL adds.
std::string describe_nccl_order();

}  // namespace trainctl
