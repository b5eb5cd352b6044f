// A rank's GPU while it trains: readings for the step records, alarms for the log.
#pragma once

#include <memory>

#include "trainctl/base/log.h"
#include "trainctl/observe/gpu_record.h"
#include "trainctl/train/gpu_sampler.h"

namespace trainctl {

enum class Speaks { Yes, No };  // of what all ranks meet alike: one of them says it

// Watches the GPU at `pci_bus` every `interval_s` until it is destroyed. nullptr without a GPU (empty bus),
// with an interval of 0, or where the driver's library is missing, which the log is told. `log` must outlive
// it.
std::unique_ptr<GpuSampler> watch_gpu(const std::string& pci_bus, double interval_s, Log& log, Speaks speaks,
                                      const std::string& library = gpu_telemetry_library);

// What is known of the GPU now; empty for nullptr.
GpuRecord gpu_record(const GpuSampler* sampler);

}  // namespace trainctl
