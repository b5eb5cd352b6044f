// Runs CUDA kernels on a processor: every thread of a block is a fiber, blocks run one after the other.
//
// Threads run one at a time, from one meeting point (barrier, warp function) to the next, warps and lanes and
// blocks in an order shuffled by seed: code that misses a barrier reads what was not written yet, sooner or
// later by any seed. Shared memory is filled with 0xFF (NaN in every format) before each block and ends at a
// page that faults. A kernel that never meets runs on one fiber, as a plain loop.
//
// What CUDA leaves undefined is a fault here: a barrier or warp function that some threads of the block or
// warp do not reach (also because they have returned), lanes that meet in different functions, an address
// outside of what the kernel may touch.
//
// Thread rule: one kernel at a time per host thread; any number of host threads.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>

namespace trainctl::cuda_double {

// Names the kernel, block and thread.
class KernelFault : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

struct KernelShape {
    dim3 grid;
    dim3 block;
    std::size_t shared_bytes = 0;
};

// Runs `thread` once per thread of the grid. Throws KernelFault; other exceptions of `thread` are not
// allowed.
void run_kernel(const char* name, const KernelShape& shape, std::uint64_t seed,
                const std::function<void()>& thread);

// ---- for the code of kernels, inside run_kernel ----

const uint3& thread_index();
const uint3& block_index();
const dim3& block_shape();
const dim3& grid_shape();
int lane_index();

// The block's dynamic shared memory.
std::byte* shared_bytes();

// All threads of the block.
void meet_block();

// All 32 lanes of the warp. `what` is a literal that all must agree on; the last lane to arrive calls `act`
// with the lanes' payloads (they may be locals: nobody moves meanwhile), then all go on.
using Payloads = std::array<void*, 32>;
void meet_warp(const char* what, void* payload, const std::function<void(const Payloads&)>& act);

// cp.async: bytes arrive when the thread waits for their group, not before.
void fetch_later(void* to, const void* from, std::size_t bytes);  // from null: zeros
void commit_fetches();
void wait_for_fetches(int newest);

}  // namespace trainctl::cuda_double
