// What older libraries have under other names.
#include "cuda_double/fake_nvml/common.h"

using namespace trainctl::test;

extern "C" {

nvmlReturn_t nvmlInit() { return start(); }

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char* bus, nvmlDevice_t* device) {
    return find_device(bus, device);
}

nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long* reasons) {
    const nvmlReturn_t status = answer("nvmlDeviceGetCurrentClocksThrottleReasons", device);
    if (status == success) *reasons = fake_nvml_gpu()->clock_reasons;
    return status;
}

// Its events have three members.
nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t* event, unsigned int milliseconds) {
    nvmlEventData_t whole{};
    const nvmlReturn_t status = next_event(set, &whole, milliseconds);
    if (status != success) return status;
    event->device = whole.device;
    event->eventType = whole.eventType;
    event->eventData = whole.eventData;
    return success;
}

}  // extern "C"
