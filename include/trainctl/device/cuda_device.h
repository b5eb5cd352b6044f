// The cuda device: a GPU's memory, streams and events. In a build without CUDA the functions answer that.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trainctl/device/device.h"

namespace trainctl {

struct CudaDeviceEntry {
    int ordinal = 0;
    std::string name;            // "NVIDIA H100 80GB HBM3"
    std::string pci_bus;         // "0000:17:00.0"
    int compute_capability = 0;  // 10 x major + minor: 90
    int multiprocessors = 0;
    std::uint64_t memory_bytes = 0;
};

// The GPUs this process may use (CUDA_VISIBLE_DEVICES); empty without a GPU, without a driver, or in a build
// without CUDA. Never throws for these; `why` (may be nullptr) then gets the reason.
std::vector<CudaDeviceEntry> list_cuda_devices(std::string* why = nullptr);

// "13.0, cuBLASLt 13.1.0, NCCL 2.28.9": what this binary uses of CUDA; "not in this build" without it.
std::string cuda_version();

enum class CudaGraphs : std::uint8_t {
    Off,  // every call of an op is issued at once
    On,   // calls on compute streams are gathered; a section of calls that comes again is replayed as a graph
};

// Of the sections gathered so far. A section ends at Stream::flush and wherever another stream, a copy or the
// host comes in.
struct CudaGraphUse {
    std::uint64_t replayed = 0;  // sections that ran as graphs
    std::uint64_t issued = 0;    // sections whose calls were issued one by one
    std::uint64_t captured = 0;  // graphs made
    std::string refusal;         // why no more are made: what CUDA said to the last; empty: they are
};

class CudaDevice : public Device {
  public:
    [[nodiscard]] virtual CudaGraphs graphs() const = 0;
    // Of the streams that exist; all 0 with CudaGraphs::Off.
    [[nodiscard]] virtual CudaGraphUse graph_use() const = 0;
};

// Makes `ordinal` the calling thread's device; the device then belongs to that thread. Exit::Resource if
// there is no such GPU or it is older than the kernels of this build, Exit::Usage in a build without CUDA.
std::unique_ptr<CudaDevice> make_cuda_device(int ordinal, CudaGraphs graphs = CudaGraphs::Off);

}  // namespace trainctl
