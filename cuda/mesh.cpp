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
    mesh.transport =
        options.transport == CudaTransport::Nccl ? MeshTransport::Direct : MeshTransport::ThroughHost;
    // The same order on all ranks: making one is collective.
    for (std::unique_ptr<Communicator>* axis :
         {&mesh.data, &mesh.tensor, &mesh.pipeline, &mesh.embedding, &mesh.node}) {
        if (!*axis) continue;
        *axis = watch ? cuda::make_nccl_communicator(std::move(*axis), device, host, watch)
                      : cuda::make_staged_communicator(std::move(*axis), device, host);
    }
    return mesh;
}

void pin_nccl_order() {
    constexpr int keep_the_users = 0;
    setenv("NCCL_ALGO", "Ring", keep_the_users);     // NOLINT(concurrency-mt-unsafe): no other thread yet
    setenv("NCCL_PROTO", "Simple", keep_the_users);  // NOLINT(concurrency-mt-unsafe)
}

std::string describe_nccl_order() {
    const char* algorithm =
        std::getenv("NCCL_ALGO");  // NOLINT(concurrency-mt-unsafe): nobody writes it any more
    const char* protocol = std::getenv("NCCL_PROTO");  // NOLINT(concurrency-mt-unsafe)
    if (algorithm == nullptr || protocol == nullptr)
        return "NCCL chooses the order of its sums: bits may differ from run to run "
               "(communication.deterministic)";
    return std::string("NCCL adds by ") + algorithm + ", " + protocol + ": the same bits at the same layout";
}

}  // namespace trainctl
