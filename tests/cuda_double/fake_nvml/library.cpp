#include <algorithm>
#include <cstdio>
#include <cstring>

#include "cuda_double/fake_nvml/common.h"

namespace trainctl::test {
namespace {

// The library's own memory, not a test's: it is loaded into the program that it answers.
FakeGpu& gpu() {
    static FakeGpu state;
    return state;
}

int event_set_tag = 0;

}  // namespace

nvmlReturn_t answer(const char* name, nvmlDevice_t device) {
    const FakeGpu& now = gpu();
    if (now.started == 0) return 1;  // uninitialised
    if (device != &gpu()) return invalid_argument;
    if (std::find(now.unsupported.begin(), now.unsupported.end(), name) != now.unsupported.end())
        return not_supported;
    return now.status;
}

nvmlReturn_t start() {
    if (gpu().driver_status == success) ++gpu().started;
    return gpu().driver_status;
}

nvmlReturn_t find_device(const char* bus, nvmlDevice_t* device) {
    if (gpu().started == 0) return 1;
    if (gpu().bus != bus) return not_found;
    *device = &gpu();
    return success;
}

nvmlReturn_t next_event(nvmlEventSet_t set, nvmlEventData_t* event, unsigned int milliseconds) {
    if (set != &event_set_tag || milliseconds != 0) return invalid_argument;
    FakeGpu& now = gpu();
    if (now.xids.empty()) return now.status == success ? timeout : now.status;
    *event = {&now, 0x8, now.xids.front(), 0xFFFFFFFF, 0xFFFFFFFF};
    now.xids.erase(now.xids.begin());
    return success;
}

}  // namespace trainctl::test

using namespace trainctl::test;

extern "C" {

FakeGpu* fake_nvml_gpu() { return &gpu(); }

nvmlReturn_t nvmlShutdown() {
    --gpu().started;
    return success;
}

const char* nvmlErrorString(nvmlReturn_t status) {
    switch (status) {
        case not_found:
            return "Not Found";
        case 9:
            return "Driver Not Loaded";
        default:
            return "Some Error";
    }
}

nvmlReturn_t nvmlSystemGetDriverVersion(char* text, unsigned int length) {
    std::snprintf(text, length, "580.65.06");
    return success;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t* rates) {
    const nvmlReturn_t status = answer("nvmlDeviceGetUtilizationRates", device);
    if (status == success) *rates = {gpu().utilisation, gpu().memory_utilisation};
    return status;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t* memory) {
    const nvmlReturn_t status = answer("nvmlDeviceGetMemoryInfo", device);
    if (status == success)
        *memory = {gpu().memory_total, gpu().memory_total - gpu().memory_used, gpu().memory_used};
    return status;
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int* milliwatts) {
    const nvmlReturn_t status = answer("nvmlDeviceGetPowerUsage", device);
    if (status == success) *milliwatts = gpu().power_mw;
    return status;
}

nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned int* milliwatts) {
    const nvmlReturn_t status = answer("nvmlDeviceGetEnforcedPowerLimit", device);
    if (status == success) *milliwatts = gpu().power_limit_mw;
    return status;
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, int sensor, unsigned int* celsius) {
    if (sensor != 0) return invalid_argument;
    const nvmlReturn_t status = answer("nvmlDeviceGetTemperature", device);
    if (status == success) *celsius = gpu().temperature;
    return status;
}

nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, int kind, unsigned int* celsius) {
    const nvmlReturn_t status = answer("nvmlDeviceGetTemperatureThreshold", device);
    if (status != success) return status;
    switch (kind) {
        case 0:  // shutdown
            *celsius = gpu().slowdown_temperature + 5;
            return success;
        case 1:
            *celsius = gpu().slowdown_temperature;
            return success;
        default:
            return invalid_argument;
    }
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, int kind, unsigned int* megahertz) {
    const nvmlReturn_t status = answer("nvmlDeviceGetClockInfo", device);
    if (status != success) return status;
    switch (kind) {
        case 0:  // graphics
            *megahertz = gpu().sm_clock + 1;
            return success;
        case 1:
            *megahertz = gpu().sm_clock;
            return success;
        case 2:
            *megahertz = gpu().memory_clock;
            return success;
        default:
            return invalid_argument;
    }
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, int kind, int counter,
                                         unsigned long long* errors) {
    const nvmlReturn_t status = answer("nvmlDeviceGetTotalEccErrors", device);
    if (status != success) return status;
    // Of the GPU's whole life (counter 1) there are more.
    *errors = (kind == 0 ? gpu().corrected : gpu().uncorrected) + (counter == 0 ? 0 : 1000);
    return success;
}

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t* set) {
    ++gpu().event_sets;
    *set = &event_set_tag;
    return success;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
    if (set != &event_set_tag) return invalid_argument;
    --gpu().event_sets;
    return success;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long kinds, nvmlEventSet_t set) {
    if (set != &event_set_tag || kinds != 0x8) return invalid_argument;
    return answer("nvmlDeviceRegisterEvents", device);
}

}  // extern "C"
