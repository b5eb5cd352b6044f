// A Communicator between GPUs.
#pragma once

#include <memory>

#include "cuda/nccl_watch.h"
#include "trainctl/comm/communicator.h"
#include "trainctl/device/cpu_device.h"

namespace trainctl::cuda {

// Brings together the ranks of `inner` (which also does barriers and splits). Differs from the host's
// communicators in two ways: sums are made in the order of NCCL's algorithm, in the tensor's own dtype, and
// Max and Min ignore NaN. Scratch: a reduce_scatter that accumulates or widens takes device memory of the
// size of its shard, once per stream.
std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator> inner, Device& device,
                                                     CpuDevice& host, std::shared_ptr<NcclWatch> watch);

}  // namespace trainctl::cuda
