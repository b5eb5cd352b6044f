#include "trainctl/observe/gpu_record.h"

#include <fmt/format.h>

#include <concepts>

#include "trainctl/base/text.h"

namespace trainctl {
namespace {

std::string value_text(double value) { return json_number(value); }
std::string value_text(bool value) { return value ? "true" : "false"; }
std::string value_text(const std::vector<std::string>& words) {
    std::string list;
    for (const std::string& word : words) list += (list.empty() ? "" : ",") + json_quote(word);
    return "[" + list + "]";
}
template <std::integral Number>
std::string value_text(Number value) {
    return std::to_string(value);
}

template <class T>
void add(std::string& members, const char* name, const std::optional<T>& value) {
    if (value) members += fmt::format(R"(,"{}":{})", name, value_text(*value));
}

}  // namespace

std::string json_members(const GpuRecord& gpu) {
    std::string members;
    add(members, "gpu_utilisation_percent", gpu.utilisation_percent);
    add(members, "gpu_memory_utilisation_percent", gpu.memory_utilisation_percent);
    add(members, "gpu_memory_used_bytes", gpu.memory_used_bytes);
    add(members, "gpu_power_w", gpu.power_w);
    add(members, "gpu_power_limit_w", gpu.power_limit_w);
    add(members, "gpu_temperature_c", gpu.temperature_c);
    add(members, "gpu_sm_clock_mhz", gpu.sm_clock_mhz);
    add(members, "gpu_memory_clock_mhz", gpu.memory_clock_mhz);
    add(members, "gpu_throttle", gpu.throttle);
    add(members, "gpu_slowed", gpu.slowed);
    add(members, "gpu_ecc_corrected", gpu.ecc_corrected);
    add(members, "gpu_ecc_uncorrected", gpu.ecc_uncorrected);
    add(members, "gpu_last_xid", gpu.last_xid);
    return members;
}

std::string json_members(const GpuExtremes& gpus) {
    std::string members;
    add(members, "gpus_temperature_max_c", gpus.temperature_max_c);
    add(members, "gpus_sm_clock_min_mhz", gpus.sm_clock_min_mhz);
    add(members, "gpus_any_slowed", gpus.any_slowed);
    return members;
}

}  // namespace trainctl
