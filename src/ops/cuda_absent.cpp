// A build without CUDA.
#include "trainctl/base/error.h"
#include "trainctl/ops/backends.h"

namespace trainctl {

std::unique_ptr<OpsBackend> make_cuda_ops(Device& /*device*/, F32Products /*f32*/) {
    fail(Exit::Internal, "cuda ops were asked for in a build without CUDA, which makes no cuda device");
}

}  // namespace trainctl
