// What the tests of this room share: a cpu device with ops, and running one case on it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "support/op_cases.h"
#include "trainctl/device/cpu_device.h"
#include "trainctl/ops/backends.h"

namespace trainctl {

// A cpu device, its compute stream, and ops on it.
class CpuBench {
  public:
    CpuBench(int threads, CpuIsa isa);
    CpuDevice& device() { return *device_; }
    Stream& stream() { return *stream_; }
    Ops cpu() { return cpu_->ops(); }
    Ops reference() { return reference_->ops(); }

    // A tensor of the device, kept alive by the bench; zero-filled.
    TensorView tensor(const Shape& shape, DType dtype);
    TensorView scratch(std::size_t bytes);

  private:
    std::unique_ptr<CpuDevice> device_;
    std::unique_ptr<Stream> stream_;
    std::unique_ptr<OpsBackend> cpu_;
    std::unique_ptr<OpsBackend> reference_;
    std::vector<Buffer> buffers_;
};

// Levels this machine can run, lowest first.
std::vector<CpuIsa> isa_levels();

// Forward, then backward.
CaseTensors run_case(const OpCase& op_case, CpuBench& bench, Ops ops, DType dtype, DType rounded_to);

// Every byte of every tensor of a case (scratch not included), in order of names.
std::vector<std::byte> all_bytes(const CaseTensors& tensors);

}  // namespace trainctl
