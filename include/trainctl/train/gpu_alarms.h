// What is wrong with a GPU, by its samples: said once when it begins, not with every sample.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "trainctl/base/log.h"
#include "trainctl/device/gpu_telemetry.h"

namespace trainctl {

struct GpuAlarm {
    LogLevel level = LogLevel::Warning;  // Error: results or the GPU itself are in doubt
    std::string text;                    // what was found and what to do
};

// A state that comes and goes (a GPU at its temperature limit slows down and recovers many times a minute) is
// said again only after it was away for this many samples.
inline constexpr int quiet_samples_before_alarm = 30;

// Depends on the samples given so far only. A value that a sample lacks changes nothing.
class GpuAlarms {
  public:
    // In the order of `now`'s members.
    std::vector<GpuAlarm> judge(const GpuSample& now);

  private:
    enum Condition { Thermal, PowerBrake, Hardware, Hot, RemapPending, RemapFailed, Lost, Conditions };

    // Whether `condition` begins with this sample.
    bool begins(Condition condition, bool holds);

    std::array<bool, Conditions> holds_{};
    std::array<int, Conditions> quiet_{};  // samples since it held last
    std::uint64_t uncorrected_ = 0;        // ECC errors told so far
};

// "XID 79: the GPU has fallen off the bus (...)": what the driver's error report means and whether the run is
// in doubt.
GpuAlarm describe_xid(std::int64_t xid);

}  // namespace trainctl
