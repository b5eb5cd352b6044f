// Samples a GPU beside the training: its driver may take milliseconds to answer, or for ever if the GPU is
// broken, and no step waits for that.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "trainctl/device/gpu_telemetry.h"
#include "trainctl/train/gpu_alarms.h"

namespace trainctl {

class GpuSampler {
  public:
    // The first sample is taken at once, the next ones every `interval_s`; a GPU that is lost is not asked
    // again. `report` gets what is wrong, on the sampler's thread, and never after the destructor.
    GpuSampler(std::unique_ptr<GpuTelemetry> telemetry, double interval_s,
               std::function<void(const GpuAlarm&)> report);
    // Waits for a call of the driver under way, but not for ever: one that does not come back is left behind.
    ~GpuSampler();
    GpuSampler(const GpuSampler&) = delete;
    GpuSampler& operator=(const GpuSampler&) = delete;

    // nullopt before the first one. Any thread; never waits for the driver.
    [[nodiscard]] std::optional<GpuSample> newest() const;
    // Of the Xids of all samples so far.
    [[nodiscard]] std::optional<std::int64_t> last_xid() const;

  private:
    struct Shared;
    static void run(const std::shared_ptr<Shared>& shared, double interval_s);

    std::shared_ptr<Shared> shared_;
    std::thread thread_;
};

}  // namespace trainctl
