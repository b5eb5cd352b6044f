// The used part of NVIDIA's management library (NVML), which has no header in the toolkit: names and values
// as its API reference has them, looked up in the library of the driver that is there.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace trainctl::cuda::nvml {

// nvmlReturn_t
enum class Status : int {
    Success = 0,
    NotSupported = 3,
    Timeout = 10,
    FunctionNotFound = 13,
    GpuIsLost = 15,
    ResetRequired = 16,
};

using Device = struct DeviceTag*;      // nvmlDevice_t
using EventSet = struct EventSetTag*;  // nvmlEventSet_t
using Count64 = unsigned long long;    // NOLINT(google-runtime-int): as the library has it

struct Utilisation {  // nvmlUtilization_t, percent
    unsigned gpu = 0;
    unsigned memory = 0;
};
struct MemoryInfo {  // nvmlMemory_t, bytes
    Count64 total = 0;
    Count64 free = 0;
    Count64 used = 0;
};
struct EventData {  // nvmlEventData_t; libraries before 11 fill its first three members
    Device device = nullptr;
    Count64 type = 0;
    Count64 data = 0;  // number of the Xid
    unsigned gpu_instance = 0;
    unsigned compute_instance = 0;
};

enum class TemperatureSensor : int { Gpu = 0 };
enum class TemperatureThreshold : int { Slowdown = 1 };
enum class Clock : int { Sm = 1, Memory = 2 };
enum class EccError : int { Corrected = 0, Uncorrected = 1 };
enum class EccCounter : int { SinceDriverLoad = 0 };

inline constexpr Count64 xid_events = 0x8;

// nvmlClocksEventReasons, nvmlClocksThrottleReasons before 12.2
namespace reason {
inline constexpr Count64 software_power_cap = 0x4;
inline constexpr Count64 hardware_slowdown = 0x8;
inline constexpr Count64 software_thermal = 0x20;
inline constexpr Count64 hardware_thermal = 0x40;
inline constexpr Count64 hardware_power_brake = 0x80;
}  // namespace reason

// The library while somebody uses it. A function that it lacks is null.
class Library {
  public:
    // nullptr if it cannot be opened or does not find a driver; `why` then says so.
    static std::shared_ptr<Library> open(const std::string& path, std::string& why);
    ~Library();
    Library(const Library&) = delete;
    Library& operator=(const Library&) = delete;

    [[nodiscard]] std::string text(Status status) const;

    Status (*driver_version)(char* text, unsigned length) = nullptr;
    Status (*handle_by_pci)(const char* bus, Device* device) = nullptr;
    Status (*utilisation)(Device, Utilisation*) = nullptr;
    Status (*memory)(Device, MemoryInfo*) = nullptr;
    Status (*power_mw)(Device, unsigned*) = nullptr;
    Status (*power_limit_mw)(Device, unsigned*) = nullptr;
    Status (*temperature)(Device, TemperatureSensor, unsigned*) = nullptr;
    Status (*temperature_threshold)(Device, TemperatureThreshold, unsigned*) = nullptr;
    Status (*clock_mhz)(Device, Clock, unsigned*) = nullptr;
    Status (*clock_reasons)(Device, Count64*) = nullptr;
    Status (*ecc_errors)(Device, EccError, EccCounter, Count64*) = nullptr;
    Status (*remapped_rows)(Device, unsigned* corrected, unsigned* uncorrected, unsigned* pending,
                            unsigned* failed) = nullptr;
    Status (*event_set_create)(EventSet*) = nullptr;
    Status (*event_set_free)(EventSet) = nullptr;
    Status (*register_events)(Device, Count64 types, EventSet) = nullptr;
    Status (*event_set_wait)(EventSet, EventData*, unsigned milliseconds) = nullptr;

  private:
    explicit Library(void* handle);
    template <class Function>
    void find(Function& function, const char* name, const char* older_name = nullptr) const;

    void* handle_;
    Status (*start_)() = nullptr;
    Status (*shut_down_)() = nullptr;
    const char* (*error_text_)(Status) = nullptr;
    bool started_ = false;
};

}  // namespace trainctl::cuda::nvml
