// The test double's launch(): the kernel joins the stream's queue and runs on the processor, as late as
// events allow.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>

#include "cuda/check.h"
#include "cuda/shared_memory_limit.h"
#include "cuda_double/machine.h"

namespace trainctl::cuda {

struct LaunchShape {
    dim3 grid;
    dim3 block;
    std::size_t shared_bytes = 0;
    cudaStream_t stream = nullptr;
};

template <class... Parameters>
void launch(const char* name, const LaunchShape& shape, void (*kernel)(Parameters...),
            std::type_identity_t<Parameters>... arguments) {
    const auto* entry = reinterpret_cast<const void*>(kernel);
    allow_shared_memory(entry, shape.shared_bytes, name);
    check(cuda_double::require_shared_memory(entry, shape.shared_bytes), name);
    check(cuda_double::enqueue_kernel(shape.stream, name, {shape.grid, shape.block, shape.shared_bytes},
                                      [kernel, arguments...] { kernel(arguments...); }),
          name);
}

constexpr unsigned blocks_for(std::int64_t count, std::int64_t per_block) {
    return static_cast<unsigned>((count + per_block - 1) / per_block);
}

}  // namespace trainctl::cuda
