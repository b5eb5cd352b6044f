#include "trainctl/device/gpu_telemetry.h"

#include <array>

#include "cuda/nvml.h"

namespace trainctl::cuda {
namespace {

using nvml::Status;

class NvmlTelemetry final : public GpuTelemetry {
  public:
    NvmlTelemetry(std::shared_ptr<nvml::Library> library, nvml::Device device)
        : library_(std::move(library)), device_(device) {
        listen();
    }
    ~NvmlTelemetry() override { stop_listening(); }
    NvmlTelemetry(const NvmlTelemetry&) = delete;
    NvmlTelemetry& operator=(const NvmlTelemetry&) = delete;

    GpuSample sample() override {
        lost_ = false;
        GpuSample now;
        read_load(now);
        read_clocks(now);
        read_memory_health(now);
        now.xids = new_xids();
        if (!lost_) return now;
        GpuSample gone;
        gone.xids = std::move(now.xids);  // why, as likely as not
        gone.lost = true;
        return gone;
    }

  private:
    // Calls what the library has; whether there is an answer.
    template <class Function, class... Arguments>
    bool ask(Function function, Arguments... arguments) {
        if (function == nullptr) return false;
        const Status status = function(arguments...);
        if (status == Status::GpuIsLost || status == Status::ResetRequired) lost_ = true;
        return status == Status::Success;
    }

    // An unsigned answer; arguments between device and answer as given.
    template <class Function, class... Arguments>
    std::optional<int> number(Function function, Arguments... arguments) {
        unsigned value = 0;
        if (!ask(function, device_, arguments..., &value)) return std::nullopt;
        return static_cast<int>(value);
    }

    static std::optional<double> watts(std::optional<int> milliwatts) {
        if (!milliwatts) return std::nullopt;
        return *milliwatts * 1e-3;
    }

    void read_load(GpuSample& now) {
        nvml::Utilisation load;
        if (ask(library_->utilisation, device_, &load)) {
            now.utilisation_percent = static_cast<int>(load.gpu);
            now.memory_utilisation_percent = static_cast<int>(load.memory);
        }
        nvml::MemoryInfo memory;
        if (ask(library_->memory, device_, &memory)) {
            now.memory_used_bytes = memory.used;
            now.memory_total_bytes = memory.total;
        }
    }

    void read_clocks(GpuSample& now) {
        now.power_w = watts(number(library_->power_mw));
        now.power_limit_w = watts(number(library_->power_limit_mw));
        now.temperature_c = number(library_->temperature, nvml::TemperatureSensor::Gpu);
        now.slowdown_temperature_c =
            number(library_->temperature_threshold, nvml::TemperatureThreshold::Slowdown);
        now.sm_clock_mhz = number(library_->clock_mhz, nvml::Clock::Sm);
        now.memory_clock_mhz = number(library_->clock_mhz, nvml::Clock::Memory);
        nvml::Count64 reasons = 0;
        if (!ask(library_->clock_reasons, device_, &reasons)) return;
        const auto any = [reasons](nvml::Count64 bits) { return (reasons & bits) != 0; };
        GpuThrottle throttle;
        throttle.power_cap = any(nvml::reason::software_power_cap);
        throttle.thermal = any(nvml::reason::software_thermal | nvml::reason::hardware_thermal);
        throttle.power_brake = any(nvml::reason::hardware_power_brake);
        // Comes together with the two reasons above where the GPU can tell them apart.
        throttle.hardware =
            any(nvml::reason::hardware_slowdown) && !throttle.thermal && !throttle.power_brake;
        now.throttle = throttle;
    }

    void read_memory_health(GpuSample& now) {
        nvml::Count64 errors = 0;
        constexpr auto counter = nvml::EccCounter::SinceDriverLoad;
        if (ask(library_->ecc_errors, device_, nvml::EccError::Corrected, counter, &errors))
            now.ecc_corrected = errors;
        if (ask(library_->ecc_errors, device_, nvml::EccError::Uncorrected, counter, &errors))
            now.ecc_uncorrected = errors;
        unsigned corrected = 0;
        unsigned uncorrected = 0;
        unsigned pending = 0;
        unsigned failed = 0;
        if (ask(library_->remapped_rows, device_, &corrected, &uncorrected, &pending, &failed)) {
            now.row_remap_pending = pending != 0;
            now.row_remap_failed = failed != 0;
        }
    }

    void listen() {
        if (library_->event_set_wait == nullptr || library_->event_set_free == nullptr) return;
        if (!ask(library_->event_set_create, &events_)) return;
        if (!ask(library_->register_events, device_, nvml::xid_events, events_)) stop_listening();
    }

    void stop_listening() {
        if (events_ != nullptr) static_cast<void>(library_->event_set_free(events_));
        events_ = nullptr;
    }

    std::vector<std::int64_t> new_xids() {
        std::vector<std::int64_t> xids;
        constexpr std::size_t most = 64;  // of a GPU that reports without end
        nvml::EventData event;
        while (events_ != nullptr && xids.size() < most &&
               ask(library_->event_set_wait, events_, &event, 0U)) {
            if ((event.type & nvml::xid_events) != 0) xids.push_back(static_cast<std::int64_t>(event.data));
        }
        return xids;
    }

    std::shared_ptr<nvml::Library> library_;
    nvml::Device device_;
    nvml::EventSet events_ = nullptr;
    bool lost_ = false;
};

}  // namespace
}  // namespace trainctl::cuda

namespace trainctl {

std::unique_ptr<GpuTelemetry> make_gpu_telemetry(const std::string& pci_bus, std::string* why,
                                                 const std::string& library_path) {
    std::string reason;
    const auto library = cuda::nvml::Library::open(library_path, reason);
    if (library) {
        cuda::nvml::Device device = nullptr;
        const auto status = library->handle_by_pci(pci_bus.c_str(), &device);
        if (status == cuda::nvml::Status::Success)
            return std::make_unique<cuda::NvmlTelemetry>(library, device);
        reason = library->text(status);
    }
    if (why != nullptr) *why = reason;
    return nullptr;
}

std::string nvidia_driver_version(const std::string& library_path) {
    std::string why;
    const auto library = cuda::nvml::Library::open(library_path, why);
    if (!library || library->driver_version == nullptr) return {};
    std::array<char, 96> text{};  // the library's own limit is 80
    if (library->driver_version(text.data(), static_cast<unsigned>(text.size())) !=
        cuda::nvml::Status::Success)
        return {};
    return text.data();
}

}  // namespace trainctl
