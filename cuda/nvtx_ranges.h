// Ranges as NVIDIA's tools show them.
#pragma once

#include "trainctl/device/ranges.h"

namespace trainctl::cuda {

// NVTX ranges of the calling thread; without a tool that listens each costs next to nothing. A capture starts
// and stops the recording of `nsys profile --capture-range=cudaProfilerApi`.
class NvtxRanges final : public Ranges {
  public:
    void push(const RangeLabel& label) override;
    void pop() noexcept override;
    void begin_capture() override;
    void end_capture() override;
};

}  // namespace trainctl::cuda
