#include "cli/gpu_watch.h"

#include <fmt/format.h>

namespace trainctl {
namespace {

std::vector<std::string> reasons(const GpuThrottle& throttle) {
    std::vector<std::string> words;
    if (throttle.power_cap) words.emplace_back("power_cap");
    if (throttle.thermal) words.emplace_back("thermal");
    if (throttle.power_brake) words.emplace_back("power_brake");
    if (throttle.hardware) words.emplace_back("hardware");
    return words;
}

}  // namespace

std::unique_ptr<GpuSampler> watch_gpu(const std::string& pci_bus, double interval_s, Log& log, Speaks speaks,
                                      const std::string& library) {
    if (pci_bus.empty() || interval_s <= 0.0) return nullptr;
    std::string why;
    std::unique_ptr<GpuTelemetry> telemetry = make_gpu_telemetry(pci_bus, &why, library);
    if (!telemetry) {
        if (speaks == Speaks::Yes)
            log.info(fmt::format("GPUs are not watched (load, power, heat, errors): {}", why));
        return nullptr;
    }
    return std::make_unique<GpuSampler>(
        std::move(telemetry), interval_s, [&log, pci_bus](const GpuAlarm& alarm) {
            log.write(alarm.level, fmt::format("GPU {}: {}", pci_bus, alarm.text));
        });
}

GpuRecord gpu_record(const GpuSampler* sampler) {
    GpuRecord record;
    if (sampler == nullptr) return record;
    record.last_xid = sampler->last_xid();
    const std::optional<GpuSample> newest = sampler->newest();
    if (!newest) return record;
    record.utilisation_percent = newest->utilisation_percent;
    record.memory_utilisation_percent = newest->memory_utilisation_percent;
    record.memory_used_bytes = newest->memory_used_bytes;
    record.power_w = newest->power_w;
    record.power_limit_w = newest->power_limit_w;
    record.temperature_c = newest->temperature_c;
    record.sm_clock_mhz = newest->sm_clock_mhz;
    record.memory_clock_mhz = newest->memory_clock_mhz;
    if (newest->throttle) {
        const GpuThrottle& throttle = *newest->throttle;
        record.throttle = reasons(throttle);
        record.slowed = throttle.thermal || throttle.power_brake || throttle.hardware;
    }
    record.ecc_corrected = newest->ecc_corrected;
    record.ecc_uncorrected = newest->ecc_uncorrected;
    return record;
}

}  // namespace trainctl
