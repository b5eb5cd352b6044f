// A Communicator for tensors on a cuda device over one for host memory: down, across, up.
#pragma once

#include <memory>

#include "trainctl/comm/communicator.h"
#include "trainctl/device/cpu_device.h"

namespace trainctl::cuda {

// Sums are made on the host, in rank order: the bits of the cpu backend. Pinned staging of the size of the
// largest message of each stream.
std::unique_ptr<Communicator> make_staged_communicator(std::unique_ptr<Communicator> inner, Device& device,
                                                       CpuDevice& host);

}  // namespace trainctl::cuda
