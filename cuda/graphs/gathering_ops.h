// Ops whose calls are gathered by the streams that gather, and go on to other ops when a section ends.
#pragma once

#include <memory>

#include "cuda/products.h"
#include "trainctl/ops/ops.h"

namespace trainctl::cuda {

// A call that breaks its contract throws when its section is handed over, with the op's name as ever.
// `products`, which belong to `ops`, are what its matrix products run by.
std::unique_ptr<OpsBackend> make_gathering_ops(std::unique_ptr<OpsBackend> ops, const Products& products);

}  // namespace trainctl::cuda
