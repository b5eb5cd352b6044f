// Starts kernels. A function and not <<< >>>, so that the same sources also compile without nvcc: the test
// double (tests/cuda_double) has another file of this name.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "cuda/check.h"
#include "cuda/shared_memory_limit.h"

namespace trainctl::cuda {

struct LaunchShape {
    dim3 grid;
    dim3 block;
    std::size_t shared_bytes = 0;  // dynamic shared memory; the only kind that kernels here use
    cudaStream_t stream = nullptr;
};

// Asynchronous. Exit::Resource with the kernel's name if the device refuses; a fault while it runs shows at
// the next host wait. `name` is a literal.
template <class... Parameters>
void launch(const char* name, const LaunchShape& shape, void (*kernel)(Parameters...),
            std::type_identity_t<Parameters>... arguments) {
    void* pointers[] = {static_cast<void*>(&arguments)..., nullptr};
    const auto* entry = reinterpret_cast<const void*>(kernel);
    allow_shared_memory(entry, shape.shared_bytes, name);
    check(cudaLaunchKernel(entry, shape.grid, shape.block, pointers, shape.shared_bytes, shape.stream), name);
}

// Blocks of `per_block` that cover `count`.
constexpr unsigned blocks_for(std::int64_t count, std::int64_t per_block) {
    return static_cast<unsigned>((count + per_block - 1) / per_block);
}

}  // namespace trainctl::cuda
