// A build without CUDA.
#include "trainctl/base/error.h"
#include "trainctl/comm/cuda_comm.h"

namespace trainctl {

Mesh make_cuda_mesh(Mesh /*host_mesh*/, Device& /*device*/, CpuDevice& /*host*/,
                    const CudaMeshOptions& /*options*/) {
    fail(Exit::Internal, "communicators for a cuda device were asked for in a build without CUDA");
}

void pin_nccl_order() {}

std::string describe_nccl_order() { return {}; }

}  // namespace trainctl
