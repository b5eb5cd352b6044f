// The emulated machine: devices with memory and streams whose work runs on the processor, as late as events
// allow.
//
// Every host thread has a current device (cudaSetDevice), as with CUDA; a rank's thread uses one of its own.
// Work runs when a host wait asks for it, on that thread, in an order that is bad on purpose (see
// support/late_queues.h), or, like on a real device, on its own, when the host has not asked for anything for
// some time: its peers may need it.
//
// Device memory is accessible while work runs and never else: host code that touches it faults. An allocation
// ends at a page that nobody may touch (its last bytes, up to alignment, are watched for writes), and holds
// 0xFF (NaN) at first. Freed memory faults.
//
// The first fault of a device is remembered: every later call answers cudaErrorLaunchFailure and
// cudaGetErrorString gives the fault's text.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cuda_double/block_engine.h"
#include "trainctl/device/host_stream.h"

namespace trainctl::cuda_double {

// What events take the time from.
enum class EventClock {
    Steady,    // the processor's: how long work really took
    Modelled,  // of the device, which only products advance, by what their algorithm is said to take
};

struct MachineOptions {
    int devices = 8;
    std::uint64_t seed = 0;                                // of all orders that CUDA leaves open
    std::uint64_t memory_bytes = std::uint64_t{1} << 30U;  // of each device
    std::uint64_t taken_bytes = 0;                         // of that by other processes
    EventClock clock = EventClock::Steady;
    std::vector<std::string> names = {};  // of the devices, by index; those beyond share a name
    std::size_t newer_blas = 0;           // added to the version that cuBLASLt's headers have
    std::size_t most_graphs = SIZE_MAX;   // executable ones that each device has memory for
};

// Forgets every device, stream, event and allocation and starts anew. Nothing of the old machine may be in
// use.
void start_machine(const MachineOptions& options);

// The remembered fault of the calling thread's device; empty if there is none.
std::string machine_fault();

// What cudaFuncSetAttribute was told, which outlives machines as it outlives work: how often, and whether a
// kernel may have so much dynamic shared memory on the calling thread's device.
std::uint64_t attributes_set();
cudaError_t require_shared_memory(const void* kernel, std::size_t bytes);

// Kernels that ran, on all devices since start_machine().
std::uint64_t kernels_run();

// Calls of cublasLtMatmulAlgoGetHeuristic and products that ran, since start_machine().
std::uint64_t heuristic_queries();
std::uint64_t products_run();

// On all devices since start_machine().
struct GraphCounts {
    std::uint64_t launched = 0;
    std::uint64_t alive = 0;  // graphs and executable graphs that were made and not destroyed
};
GraphCounts graph_counts();

cudaError_t enqueue_kernel(cudaStream_t stream, const char* name, const KernelShape& shape,
                           std::function<void()> thread);
// Work that computes at once on device memory.
cudaError_t enqueue_work(cudaStream_t stream, std::function<void()> work);
// Work that waits for somebody else: `operation` is visited until it is done.
cudaError_t enqueue_operation(cudaStream_t stream, std::unique_ptr<Operation> operation);

}  // namespace trainctl::cuda_double
