// The axes of a mesh for tensors on a cuda device.
#include <cstdlib>

#include "cuda/nccl_communicator.h"
#include "cuda/staged_communicator.h"
#include "trainctl/comm/cuda_comm.h"

namespace trainctl {

Mesh make_cuda_mesh(Mesh host_mesh, Device& device, CpuDevice& host, const CudaMeshOptions& options) {
    Mesh mesh = std::move(host_mesh);
    std::shared_ptr<cuda::NcclWatch> watch;
    if (options.transport == CudaTransport::Nccl)
        watch = std::make_shared<cuda::NcclWatch>(options.timeout_s, options.on_failure);
    // The same order on all ranks: making one is collective.
    for (std::unique_ptr<Communicator>* axis :
         {&mesh.data, &mesh.tensor, &mesh.pipeline, &mesh.embedding, &mesh.node}) {
        if (!*axis) continue;
        *axis = watch ? cuda::make_nccl_communicator(std::move(*axis), device, host, watch)
                      : cuda::make_staged_communicator(std::move(*axis), device, host);
    }
    return mesh;
}

std::string pin_nccl_order() {
    constexpr int keep_the_users = 0;
    setenv("NCCL_ALGO", "Ring", keep_the_users);     // NOLINT(concurrency-mt-unsafe): no other thread yet
    setenv("NCCL_PROTO", "Simple", keep_the_users);  // NOLINT(concurrency-mt-unsafe)
    const auto value = [](const char* name) {
        return std::string(std::getenv(name));
    };  // NOLINT(concurrency-mt-unsafe)
    return "NCCL adds by " + value("NCCL_ALGO") + " and " + value("NCCL_PROTO") +
           " (communication.deterministic)";
}

}  // namespace trainctl
