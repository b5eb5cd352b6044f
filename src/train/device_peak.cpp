#include "trainctl/train/device_peak.h"

#include <algorithm>
#include <array>
#include <cctype>

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

// https://www.nvidia.com/en-us/data-center/ and the white papers of the architectures.
std::optional<double> data_sheet_peak(std::string_view device_name, DType dtype) {
    if (dtype != DType::BF16 && dtype != DType::F16) return std::nullopt;
    struct Entry {
        std::string_view name;  // the first entry of which all is in the device's name, word by word
        double flops_per_s;
    };
    static constexpr std::array<Entry, 12> sheets{{{"GB200", 2.5e15},
                                                   {"B200", 2.25e15},
                                                   {"H200 NVL", 835e12},
                                                   {"H200", 989e12},
                                                   {"H100 PCIe", 756e12},
                                                   {"H100 NVL", 835e12},
                                                   {"H100", 989e12},
                                                   {"A100", 312e12},
                                                   {"L40S", 362e12},
                                                   {"L4", 121e12},
                                                   {"RTX A6000", 154.85e12},
                                                   {"RTX 4090", 165.2e12}}};
    const auto is_letter = [&](std::size_t at) {
        return at < device_name.size() && std::isalnum(static_cast<unsigned char>(device_name[at])) != 0;
    };
    for (const Entry& entry : sheets) {
        const std::size_t at = device_name.find(entry.name);
        if (at == std::string_view::npos) continue;
        const bool begins = at == 0 || !is_letter(at - 1);
        if (begins && !is_letter(at + entry.name.size())) return entry.flops_per_s;
    }
    return std::nullopt;
}

DevicePeak device_peak(std::string_view device_name, DType dtype, double measured_flops_per_s) {
    const auto sheet = data_sheet_peak(device_name, dtype);
    return {sheet.value_or(measured_flops_per_s), measured_flops_per_s,
            sheet ? PeakSource::DataSheet : PeakSource::Measured};
}

bool PeakRate::refuted_by(double flops_per_s) {
    if (flops_per_s_ <= 0.0 || flops_per_s <= flops_per_s_) return false;
    flops_per_s_ = 0.0;
    return true;
}

}  // namespace trainctl
