#include "cuda/shared_memory_limit.h"

#include <cuda_runtime_api.h>

#include <vector>

#include "cuda/check.h"

namespace trainctl::cuda {

void allow_shared_memory(const void* kernel, std::size_t bytes, const char* name) {
    constexpr std::size_t allowed_to_all = 48U * 1024U;
    if (bytes <= allowed_to_all) return;
    struct Allowed {
        const void* kernel;
        int device;
        std::size_t bytes;
    };
    // What the run time has been told, which it keeps as long as the process. By thread, since a device
    // belongs to one: no lock in front of a launch. A few dozen entries at most.
    static thread_local std::vector<Allowed> told;
    int device = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
    for (const Allowed& known : told)
        if (known.kernel == kernel && known.device == device && known.bytes >= bytes) return;
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
          name);
    told.push_back({kernel, device, bytes});
}

}  // namespace trainctl::cuda
