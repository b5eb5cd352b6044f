#include "trainctl/train/device_peak.h"

#include <algorithm>

namespace trainctl {

double measure_peak_flops(Device& device, MatmulOps& matmul, Stream& compute, DType dtype, Clock& clock) {
    constexpr std::int64_t size = 1024;
    constexpr int repetitions = 6;
    const Shape square{size, size};
    const std::size_t bytes = storage_bytes(square.elements(), dtype);
    const Buffer x = device.allocate(bytes, Memory::Device, "peak measurement");
    const Buffer w = device.allocate(bytes, Memory::Device, "peak measurement");
    const Buffer y = device.allocate(bytes, Memory::Device, "peak measurement");
    const std::size_t scratch_bytes = matmul.scratch_bytes(MatmulKind::Forward, size, size, size, dtype);
    const Buffer scratch =
        device.allocate(std::max<std::size_t>(scratch_bytes, 1), Memory::Device, "peak measurement");
    double best_s = 1e30;
    for (int repetition = 0; repetition <= repetitions; ++repetition) {
        const double began = clock.monotonic_s();
        matmul.forward(compute, y.view(square, dtype), x.view(square, dtype), w.view(square, dtype), {},
                       scratch.view(Shape{static_cast<std::int64_t>(scratch_bytes)}, DType::U8));
        compute.synchronize();
        if (repetition > 0) best_s = std::min(best_s, clock.monotonic_s() - began);  // the first one compiles
    }
    return 2.0 * static_cast<double>(size) * static_cast<double>(size) * static_cast<double>(size) / best_s;
}

bool PeakRate::refuted_by(double flops_per_s) {
    if (flops_per_s_ <= 0.0 || flops_per_s <= flops_per_s_) return false;
    flops_per_s_ = 0.0;
    return true;
}

}  // namespace trainctl
