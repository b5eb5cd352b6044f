// Cosines and sines of the rotary position embedding.
#pragma once

#include "trainctl/config/job_spec.h"
#include "trainctl/device/device.h"

namespace trainctl {

// [length, head_dim / 2, 2] of `dtype` (F32, or F64 for a double-precision backend): cosine and sine of
// position x theta^(-2i / head_dim), computed in double and rounded once.
class RopeTable {
  public:
    // Waits on the host until the table lies in the device's memory.
    RopeTable(Device& device, const ModelSpec& model, std::int64_t length, DType dtype);
    // The first `length` positions.
    [[nodiscard]] TensorView view(std::int64_t length) const;

  private:
    Shape shape_;
    DType dtype_;
    Buffer buffer_;
};

}  // namespace trainctl
