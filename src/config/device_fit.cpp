#include "trainctl/config/device_fit.h"

#include <fmt/format.h>

#include "trainctl/tensor/kernel_limits.h"

namespace trainctl {

std::optional<DeviceMisfit> cuda_misfit(const ModelSpec& model) {
    if (model.head_dim <= cuda_largest_head) return std::nullopt;
    return DeviceMisfit{
        "model.head_dim",
        fmt::format("device cuda has attention kernels for heads of up to {} elements, model.head_dim is {}",
                    cuda_largest_head, model.head_dim),
        "raise model.heads, give a smaller model.head_dim, or set device.kind = \"cpu\""};
}

}  // namespace trainctl
