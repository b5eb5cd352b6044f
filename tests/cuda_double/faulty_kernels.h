// Kernels with one fault each, and their healthy twins: what the double must see.
#pragma once

#include <cuda_runtime_api.h>

namespace trainctl::cuda_double {

enum class Planted {
    None,
    MissingBarrier,      // reads a neighbour's shared memory without waiting for it
    BarrierNotForAll,    // one thread returns in front of a barrier
    ShuffleNotForAll,    // half a warp goes elsewhere
    DifferentFunctions,  // lanes of a warp meet in different functions
    OffByOne,            // writes one element too many
    FarOutside,          // reads far outside
    SharedOutside,       // leaves shared memory
    UnwrittenShared,     // reads shared memory that nobody wrote
    FetchNotWaitedFor,   // reads what cp.async has not brought yet
};

// out[blocks * 64] = in[...] of the other end of the block, by shared memory. Blocks of 64 threads.
void reverse_blocks(float* out, const float* in, int blocks, Planted fault, cudaStream_t stream);

}  // namespace trainctl::cuda_double
