// Tensors with a host and a device side, for tests that look at single elements.
#pragma once

#include <cstring>
#include <vector>

#include "cuda/cuda_bench.h"

namespace trainctl::cuda_test {

struct Mirror {
    TensorView host;
    TensorView device;
};

// Makes them, keeps them, moves them. Host sides are zero at first; up() and down() wait.
class Mirrors {
  public:
    explicit Mirrors(CudaBench& bench) : bench_(bench), cpu_(make_cpu_device({1, CpuIsa::V3})) {}

    Mirror make(const Shape& shape, DType dtype) {
        const auto on = [&](Device& device) {
            TensorView view{nullptr, shape, dtype};
            buffers_.push_back(device.allocate(view.bytes(), Memory::Device, "test"));
            view.data = buffers_.back().data();
            return view;
        };
        return {on(*cpu_), on(bench_.device())};
    }
    // With values already on both sides.
    Mirror filled(const Shape& shape, DType dtype, const std::vector<double>& values) {
        const Mirror mirror = make(shape, dtype);
        for (std::size_t i = 0; i < values.size(); ++i)
            set_element(mirror.host, static_cast<std::int64_t>(i), values[i]);
        up(mirror);
        return mirror;
    }
    void up(const Mirror& mirror) { bench_.copies().upload(mirror.device, mirror.host); }
    void down(const Mirror& mirror) { bench_.copies().download(mirror.host, mirror.device); }

  private:
    CudaBench& bench_;
    std::unique_ptr<CpuDevice> cpu_;
    std::vector<Buffer> buffers_;
};

}  // namespace trainctl::cuda_test
