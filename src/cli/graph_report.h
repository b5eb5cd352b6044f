// Says how much of a training runs as CUDA graphs.
#pragma once

#include <cstdint>

#include "trainctl/base/log.h"
#include "trainctl/device/cuda_device.h"

namespace trainctl {

class GraphReport {
  public:
    // Reports on `device` to `log`; says nothing without a device or with graphs off.
    GraphReport(const CudaDevice* device, Log& log);

    // After every step of an attempt, `done` of them so far. One line, when what repeats has been captured.
    void step_closed(std::int64_t done);
    // How much it was in all.
    void finish() const;

  private:
    const CudaDevice* device_;  // nullptr: silent
    Log& log_;
    CudaGraphUse before_;
};

}  // namespace trainctl
