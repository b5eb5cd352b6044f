// How a GPU is doing, as NVIDIA's management library tells. The library comes with the driver and is looked
// for when the program runs; without it, and in a build without CUDA, there is no telemetry.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace trainctl {

// What holds the clocks down.
struct GpuThrottle {
    bool power_cap = false;    // at the power limit: usual under full load
    bool thermal = false;      // too hot, whether the driver or the hardware slows it
    bool power_brake = false;  // the machine's power supply asks for it
    bool hardware = false;     // clocks at half or less, for a reason that the driver does not tell apart
};

// At one moment. What this GPU, driver or library does not tell is absent.
struct GpuSample {
    std::optional<int> utilisation_percent;  // of the last second or less: time with any kernel at work
    std::optional<int> memory_utilisation_percent;   // time in which its memory was read or written
    std::optional<std::uint64_t> memory_used_bytes;  // by all processes
    std::optional<std::uint64_t> memory_total_bytes;
    std::optional<double> power_w;
    std::optional<double> power_limit_w;
    std::optional<int> temperature_c;
    std::optional<int> slowdown_temperature_c;  // where the hardware begins to slow down
    std::optional<int> sm_clock_mhz;
    std::optional<int> memory_clock_mhz;
    std::optional<GpuThrottle> throttle;
    std::optional<std::uint64_t> ecc_corrected;    // errors since the driver was loaded
    std::optional<std::uint64_t> ecc_uncorrected;  // errors since the driver was loaded
    std::optional<bool> row_remap_pending;         // memory rows are replaced at the next reset
    std::optional<bool> row_remap_failed;          // no spare row was left
    std::vector<std::int64_t> xids;                // the driver's error reports since the last sample
    bool lost = false;  // the driver does not reach the GPU any more; all else is absent
};

// Thread rule: one thread at a time, any thread. A call takes milliseconds, more if the driver is busy.
class GpuTelemetry {
  public:
    virtual ~GpuTelemetry() = default;
    // Never throws for what the driver answers.
    virtual GpuSample sample() = 0;
};

inline constexpr const char* gpu_telemetry_library = "libnvidia-ml.so.1";

// Of the GPU at `pci_bus` ("0000:17:00.0"). nullptr if there is no such library, driver or GPU; `why` (may be
// nullptr) then gets the reason. Never throws for these.
std::unique_ptr<GpuTelemetry> make_gpu_telemetry(const std::string& pci_bus, std::string* why,
                                                 const std::string& library = gpu_telemetry_library);

// "580.65.06"; empty where telemetry is absent.
std::string nvidia_driver_version(const std::string& library = gpu_telemetry_library);

}  // namespace trainctl
