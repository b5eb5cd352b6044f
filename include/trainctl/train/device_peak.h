// The ceiling that MFU is measured against on a device without a data sheet.
#pragma once

#include "trainctl/base/clock.h"
#include "trainctl/ops/ops.h"

namespace trainctl {

// FLOP/s of the best of a few products of 1024 x 1024 x 1024 in the compute dtype on this rank; takes about
// 0.1 s.
double measure_peak_flops(Device& device, MatmulOps& matmul, Stream& compute, DType dtype, Clock& clock);

}  // namespace trainctl
