#include "cuda/nvml.h"

#include <dlfcn.h>
#include <fmt/core.h>

namespace trainctl::cuda::nvml {

template <class Function>
void Library::find(Function& function, const char* name, const char* older_name) const {
    void* found = dlsym(handle_, name);
    if (found == nullptr && older_name != nullptr) found = dlsym(handle_, older_name);
    function = reinterpret_cast<Function>(found);
}

Library::Library(void* handle) : handle_(handle) {
    find(start_, "nvmlInit_v2", "nvmlInit");
    find(shut_down_, "nvmlShutdown");
    find(error_text_, "nvmlErrorString");
    find(driver_version, "nvmlSystemGetDriverVersion");
    find(handle_by_pci, "nvmlDeviceGetHandleByPciBusId_v2", "nvmlDeviceGetHandleByPciBusId");
    find(utilisation, "nvmlDeviceGetUtilizationRates");
    find(memory, "nvmlDeviceGetMemoryInfo");
    find(power_mw, "nvmlDeviceGetPowerUsage");
    find(power_limit_mw, "nvmlDeviceGetEnforcedPowerLimit");
    find(temperature, "nvmlDeviceGetTemperature");
    find(temperature_threshold, "nvmlDeviceGetTemperatureThreshold");
    find(clock_mhz, "nvmlDeviceGetClockInfo");
    find(clock_reasons, "nvmlDeviceGetCurrentClocksEventReasons",
         "nvmlDeviceGetCurrentClocksThrottleReasons");
    find(ecc_errors, "nvmlDeviceGetTotalEccErrors");
    find(remapped_rows, "nvmlDeviceGetRemappedRows");
    find(event_set_create, "nvmlEventSetCreate");
    find(event_set_free, "nvmlEventSetFree");
    find(register_events, "nvmlDeviceRegisterEvents");
    find(event_set_wait, "nvmlEventSetWait_v2", "nvmlEventSetWait");
}

Library::~Library() {
    if (started_) static_cast<void>(shut_down_());
    dlclose(handle_);
}

std::string Library::text(Status status) const {
    if (error_text_ == nullptr) return fmt::format("error {}", static_cast<int>(status));
    return error_text_(status);
}

std::shared_ptr<Library> Library::open(const std::string& path, std::string& why) {
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
        const char* reason = dlerror();  // NOLINT(concurrency-mt-unsafe): glibc keeps one per thread
        why = reason == nullptr ? "it cannot be opened" : reason;
        return nullptr;
    }
    const std::shared_ptr<Library> library(new Library(handle));
    if (library->start_ == nullptr || library->shut_down_ == nullptr || library->handle_by_pci == nullptr) {
        why = path + " is not NVIDIA's management library";
        return nullptr;
    }
    const Status status = library->start_();
    library->started_ = status == Status::Success;
    if (!library->started_) {
        why = library->text(status);
        return nullptr;
    }
    return library;
}

}  // namespace trainctl::cuda::nvml
