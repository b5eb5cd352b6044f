// Included in front of every .cu file that g++ compiles: the words of the CUDA language that the backend
// uses.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstring>

#include "cuda_double/block_engine.h"

#undef __global__
#undef __device__
#undef __launch_bounds__
#define __global__
#define __device__
#define __launch_bounds__(...)

#define threadIdx (::trainctl::cuda_double::thread_index())
#define blockIdx (::trainctl::cuda_double::block_index())
#define blockDim (::trainctl::cuda_double::block_shape())
#define gridDim (::trainctl::cuda_double::grid_shape())
