#include "cli/device_option.h"

namespace trainctl {

void add_device_option(CLI::App& command, std::string& value) {
    command.add_option("--device", value, "auto, cpu or cuda; auto: cuda if every rank of a host gets a GPU")
        ->capture_default_str()
        ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
}

DeviceKind device_kind(const std::string& value) {
    if (value == "cuda") return DeviceKind::Cuda;
    return value == "cpu" ? DeviceKind::Cpu : DeviceKind::Auto;
}

}  // namespace trainctl
