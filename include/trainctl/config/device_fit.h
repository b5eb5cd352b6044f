// Which models a device has kernels for. Pure.
#pragma once

#include <optional>
#include <string>

#include "trainctl/config/job_spec.h"

namespace trainctl {

struct DeviceMisfit {
    std::string key;   // the one to change
    std::string what;  // "device cuda has attention kernels for heads of up to 256 elements, ..."
    std::string hint;
};

// Why the cuda device cannot compute this model; nullopt: it can.
std::optional<DeviceMisfit> cuda_misfit(const ModelSpec& model);

}  // namespace trainctl
