// Whether two ranges hold the same bits.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace trainctl::cuda {

// Sets *flag to 1 if a and b differ in any bit, else leaves it. `bytes`: an even number.
void mark_difference(cudaStream_t stream, std::uint32_t* flag, const void* a, const void* b,
                     std::size_t bytes);

}  // namespace trainctl::cuda
