#include "trainctl/train/device_peak.h"

#include <algorithm>

namespace trainctl {

namespace {

// FLOP/s of the best of a few products of size x size x size.
double rate_of_products(Device& device, MatmulOps& matmul, Stream& compute, DType dtype, Clock& clock,
                        std::int64_t size) {
    constexpr int repetitions = 6;
    constexpr double enough_s = 0.5;
    const Shape square{size, size};
    const std::size_t bytes = storage_bytes(square.elements(), dtype);
    const Buffer x = device.allocate(bytes, Memory::Device, "peak measurement");
    const Buffer w = device.allocate(bytes, Memory::Device, "peak measurement");
    const Buffer y = device.allocate(bytes, Memory::Device, "peak measurement");
    const std::size_t scratch_bytes = matmul.scratch_bytes(MatmulKind::Forward, size, size, size, dtype);
    const Buffer scratch =
        device.allocate(std::max<std::size_t>(scratch_bytes, 1), Memory::Device, "peak measurement");
    double best_s = 1e30;
    const double first = clock.monotonic_s();
    for (int repetition = 0; repetition <= repetitions; ++repetition) {
        if (repetition > 1 && clock.monotonic_s() - first > enough_s) break;
        const double began = clock.monotonic_s();
        matmul.forward(compute, y.view(square, dtype), x.view(square, dtype), w.view(square, dtype), {},
                       scratch.view(Shape{static_cast<std::int64_t>(scratch_bytes)}, DType::U8));
        compute.synchronize();
        if (repetition > 0) best_s = std::min(best_s, clock.monotonic_s() - began);  // the first one compiles
    }
    return 2.0 * static_cast<double>(size) * static_cast<double>(size) * static_cast<double>(size) / best_s;
}

}  // namespace

double measure_peak_flops(Device& device, MatmulOps& matmul, Stream& compute, DType dtype, Clock& clock,
                          std::int64_t smallest) {
    // Where a product is over within the time that starting it takes, larger ones show the rate.
    constexpr double too_short_s = 4e-4;
    constexpr std::int64_t largest = 8192;
    for (std::int64_t size = smallest;; size *= 2) {
        const double rate = rate_of_products(device, matmul, compute, dtype, clock, size);
        const double flops =
            2.0 * static_cast<double>(size) * static_cast<double>(size) * static_cast<double>(size);
        if (flops / rate > too_short_s || size >= largest) return rate;
    }
}

bool PeakRate::refuted_by(double flops_per_s) {
    if (flops_per_s_ <= 0.0 || flops_per_s <= flops_per_s_) return false;
    flops_per_s_ = 0.0;
    return true;
}

}  // namespace trainctl
