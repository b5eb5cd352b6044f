// What a step record holds about GPUs. Absent: not told by the GPU or its driver, or not known yet.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trainctl {

// The GPU of one rank, sampled some seconds before the step was closed.
struct GpuRecord {
    std::optional<int> utilisation_percent;          // time with any kernel at work
    std::optional<int> memory_utilisation_percent;   // time in which its memory was read or written
    std::optional<std::uint64_t> memory_used_bytes;  // by all processes
    std::optional<double> power_w;
    std::optional<double> power_limit_w;
    std::optional<int> temperature_c;
    std::optional<int> sm_clock_mhz;
    std::optional<int> memory_clock_mhz;
    std::optional<std::vector<std::string>> throttle;  // what holds the clocks down; empty: nothing
    std::optional<bool> slowed;                        // by anything but the power limit
    std::optional<std::uint64_t> ecc_corrected;        // since the driver was loaded
    std::optional<std::uint64_t> ecc_uncorrected;
    std::optional<std::int64_t> last_xid;  // of this attempt
};

// Over the GPUs of all ranks that tell.
struct GpuExtremes {
    std::optional<std::int64_t> temperature_max_c;
    std::optional<std::int64_t> sm_clock_min_mhz;
    std::optional<bool> any_slowed;
};

// ,"gpu_power_w":312.5,...: the members that are there, to be put into a JSON object behind others.
std::string json_members(const GpuRecord& gpu);
std::string json_members(const GpuExtremes& gpus);

}  // namespace trainctl
