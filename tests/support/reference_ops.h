// The oracle: every op in plain loops and double precision, written from the formulas and sharing nothing
// with any backend's kernels. For gradients by finite differences, and to compare the cpu and cuda backends
// with.
#pragma once

#include <memory>

#include "trainctl/ops/ops.h"

namespace trainctl {

// Runs on any stream whose work is host code. Takes tensors of any floating dtype (also mixed ones, F64
// everywhere included): converts at the edges, computes in double. Needs no scratch. Slow: tiny shapes only.
std::unique_ptr<OpsBackend> make_reference_ops();

}  // namespace trainctl
