// Says how much of a training runs as CUDA graphs.
#pragma once

#include <cstdint>

#include "trainctl/base/log.h"
#include "trainctl/device/cuda_device.h"

namespace trainctl {

// Of all ranks, which do the same, one tells how it goes; what only one rank meets, it tells itself.
enum class GraphNews { Everything, Refusals };

class GraphReport {
  public:
    // Reports on `device` to `log`; says nothing without a device or with graphs off.
    GraphReport(const CudaDevice* device, GraphNews news, Log& log);

    // After every step of an attempt, `done` of them so far. One line, when what repeats has been captured;
    // a warning, once, if CUDA refuses to make a graph.
    void step_closed(std::int64_t done);
    // How much it was in all.
    void finish() const;

  private:
    const CudaDevice* device_;  // nullptr: silent
    GraphNews news_;
    Log& log_;
    CudaGraphUse before_;
    bool refusal_told_ = false;
};

}  // namespace trainctl
