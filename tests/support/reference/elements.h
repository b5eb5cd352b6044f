// Elements of host tensors as doubles, whatever their dtype.
#pragma once

#include <cstdint>

#include "trainctl/device/host_stream.h"
#include "trainctl/ops/ops.h"

namespace trainctl {

double element(const TensorView& tensor, std::int64_t index);
void set_element(const TensorView& tensor, std::int64_t index, double value);  // rounds to the tensor's dtype

}  // namespace trainctl

namespace trainctl::reference {

// += or =
inline void put(const TensorView& tensor, std::int64_t index, double value, Into into) {
    set_element(tensor, index, into == Into::Accumulate ? element(tensor, index) + value : value);
}

// Product of all extents but the last.
inline std::int64_t rows_of(const TensorView& tensor) {
    const std::int64_t last = tensor.shape[tensor.shape.rank() - 1];
    return last == 0 ? 0 : tensor.elements() / last;
}
inline std::int64_t columns_of(const TensorView& tensor) { return tensor.shape[tensor.shape.rank() - 1]; }

// 0 for a dropped element, else 1/(1 - probability); `element` counts within sample first_sample + sample.
double dropout_factor(const Dropout& dropout, std::int64_t sample, std::int64_t element);

}  // namespace trainctl::reference
