// What only newer libraries have, or have under this name.
#include "cuda_double/fake_nvml/common.h"

using namespace trainctl::test;

extern "C" {

nvmlReturn_t nvmlInit_v2() { return start(); }

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char* bus, nvmlDevice_t* device) {
    return find_device(bus, device);
}

nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long* reasons) {
    const nvmlReturn_t status = answer("nvmlDeviceGetCurrentClocksEventReasons", device);
    if (status == success) *reasons = fake_nvml_gpu()->clock_reasons;
    return status;
}

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int* corrected,
                                       unsigned int* uncorrected, unsigned int* pending,
                                       unsigned int* failed) {
    const nvmlReturn_t status = answer("nvmlDeviceGetRemappedRows", device);
    if (status != success) return status;
    *corrected = 3;
    *uncorrected = 4;
    *pending = fake_nvml_gpu()->remap_pending;
    *failed = fake_nvml_gpu()->remap_failed;
    return success;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t* event, unsigned int milliseconds) {
    return next_event(set, event, milliseconds);
}

}  // extern "C"
