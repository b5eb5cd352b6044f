#include <dnnl_version.h>
#include <fmt/format.h>

#include "cli/command.h"
#include "trainctl/base/build_info.h"
#include "trainctl/base/text.h"
#include "trainctl/comm/world.h"
#include "trainctl/device/cpu_device.h"
#include "trainctl/device/cuda_device.h"
#include "trainctl/device/gpu_telemetry.h"

namespace trainctl {

namespace {

struct GpuList {
    std::string text;
    std::string json;
};

GpuList gpus_here(const std::string& driver) {
    std::string why;
    GpuList list;
    for (const CudaDeviceEntry& gpu : list_cuda_devices(&why)) {
        list.text += fmt::format("{}{} ({}, {})", list.text.empty() ? "" : "; ", gpu.name,
                                 format_bytes(gpu.memory_bytes), gpu.pci_bus);
        list.json += fmt::format(R"({}{{"name":{},"pci_bus":{},"memory_bytes":{},"compute_capability":{}}})",
                                 list.json.empty() ? "" : ",", json_quote(gpu.name), json_quote(gpu.pci_bus),
                                 gpu.memory_bytes, gpu.compute_capability);
    }
    if (list.text.empty()) list.text = "none: " + why;
    if (!driver.empty()) list.text += fmt::format(", driver {}", driver);
    list.json = "[" + list.json + "]";
    return list;
}

}  // namespace

void add_version_command(CLI::App& app, Invocation& invocation) {
    CLI::App* command =
        app.add_subcommand("version", "What this binary was built from, and what it can use here");
    add_json_flag(*command, invocation);
    command->callback([&invocation] {
        invocation.action = [&invocation] {
            const BuildInfo build = build_info();
            const std::string onednn =
                fmt::format("{}.{}.{}", DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR, DNNL_VERSION_PATCH);
            const std::string driver = nvidia_driver_version();
            const GpuList gpus = gpus_here(driver);
            const std::string isa = cpu_isa_name(detect_cpu_isa());
            print_result(
                invocation,
                fmt::format("trainctl {} ({}, {}, {})\n  cpu   {} kernels, oneDNN {}\n  cuda  {}\n  gpus  "
                            "{}\n  mpi   {}\n",
                            build.version, build.revision, build.build_type, build.compiler, isa, onednn,
                            cuda_version(), gpus.text, mpi_library_version()),
                fmt::format(
                    R"({{"version":{},"revision":{},"build_type":{},"compiler":{},"cpu_isa":{},"onednn":{},"cuda":{},"driver":{},"gpus":{},"mpi":{}}})",
                    json_quote(build.version), json_quote(build.revision), json_quote(build.build_type),
                    json_quote(build.compiler), json_quote(isa), json_quote(onednn),
                    json_quote(cuda_version()), driver.empty() ? "null" : json_quote(driver), gpus.json,
                    json_quote(mpi_library_version())));
            return Exit::Ok;
        };
    });
}

}  // namespace trainctl
