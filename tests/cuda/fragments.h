// One warp, one instruction: what each lane of mma, ldmatrix and cp.async holds. The same kernels run on a
// GPU and on the double, and must both give what plain loops give (fragments_test.cpp).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "trainctl/tensor/dtype.h"

namespace trainctl::cuda_test {

// d[16 x 8] += a[16 x 16] b[16 x 8], one mma. a and d by rows, b by columns; device memory. T: BFloat16 or
// Float16.
template <class T>
void one_product(float* d, const T* a, const T* b, cudaStream_t stream);

enum class MatrixRead { Straight, Transposed };

// out[lane][i] = register i of that lane after one ldmatrix of four 8 x 8 matrices, which stand one after the
// other in `matrices`, by rows. out: 32 x 4.
void one_matrix_read(std::uint32_t* out, const std::uint16_t* matrices, MatrixRead read, cudaStream_t stream);

inline constexpr int fetch_lanes = 32;
inline constexpr int fetch_groups = 3;

// out[group][lane] = what arrived from in[group][lane] by cp.async of `bytes` (16, 8 or 4), or zeros where
// (group + lane) % 5 == 0. Each group is read as soon as the wait for it ends, the next ones under way.
void fetched_in_groups(std::byte* out, const std::byte* in, int bytes, cudaStream_t stream);

}  // namespace trainctl::cuda_test
