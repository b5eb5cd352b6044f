// A cuda device with ops, and op cases on it.
#pragma once

#include <memory>

#include "support/op_cases.h"
#include "trainctl/device/cpu_device.h"
#include "trainctl/device/cuda_device.h"
#include "trainctl/ops/backends.h"

namespace trainctl::cuda_test {

// Every program that runs these tests defines it. The double starts anew, with `seed` for all orders that
// CUDA leaves open; a GPU is what it is.
void start_cuda_machine(std::uint64_t seed);

// Copies between a tensor of host memory and one of the device, of equal bytes; waits.
class HostCopies {
  public:
    HostCopies(Device& device, Stream& stream) : device_(device), stream_(stream) {}
    void upload(TensorView to, const TensorView& from);
    void download(TensorView to, const TensorView& from);

  private:
    Device& device_;
    Stream& stream_;
};

// Where the tensors of a case begin: as allocations do, or one element beyond, off the grid of wide accesses.
enum class Placement { Aligned, OffGrid };

class CudaBench {
  public:
    explicit CudaBench(std::uint64_t seed, F32Products f32 = F32Products::Exact);
    // On device 0 of the machine as it is: what was tuned or made on it before may be compared.
    explicit CudaBench(F32Products f32);

    // Allocates and fills the case as the cpu tests do, runs it on the cuda device, and brings everything
    // back.
    CaseTensors run(const OpCase& op_case, DType dtype, Placement placement = Placement::Aligned);

    Device& device() { return *cuda_; }
    Stream& stream() { return *stream_; }
    Ops ops() { return ops_->ops(); }
    ProductPlans& plans() { return *ops_->product_plans(); }
    HostCopies& copies() { return copies_; }

  private:
    CudaBench(std::unique_ptr<Device> cuda, F32Products f32);

    std::unique_ptr<CpuDevice> cpu_;
    std::unique_ptr<Device> cuda_;
    std::unique_ptr<Stream> stream_;
    std::unique_ptr<OpsBackend> ops_;
    HostCopies copies_;
};

}  // namespace trainctl::cuda_test
