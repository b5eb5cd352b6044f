// A build without CUDA.
#include "trainctl/base/error.h"
#include "trainctl/device/cuda_device.h"
#include "trainctl/device/gpu_telemetry.h"

namespace trainctl {

std::vector<CudaDeviceEntry> list_cuda_devices(std::string* why) {
    if (why != nullptr) *why = "this binary was built without CUDA";
    return {};
}

std::string cuda_version() { return "not in this build"; }

std::unique_ptr<CudaDevice> make_cuda_device(int /*ordinal*/, CudaGraphs /*graphs*/) {
    fail(Exit::Usage,
         "expected a build with CUDA for device.kind = \"cuda\", but this binary was built without it; "
         "install the CUDA toolkit and configure again, or set device.kind = \"cpu\"");
}

std::unique_ptr<GpuTelemetry> make_gpu_telemetry(const std::string& /*pci_bus*/, std::string* why,
                                                 const std::string& /*library*/) {
    if (why != nullptr) *why = "this binary was built without CUDA";
    return nullptr;
}

std::string nvidia_driver_version(const std::string& /*library*/) { return {}; }

}  // namespace trainctl
