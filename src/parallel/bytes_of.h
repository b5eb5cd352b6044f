#pragma once

#include <cstddef>
#include <cstdint>

#include "trainctl/tensor/dtype.h"

namespace trainctl {

inline std::size_t bytes_of(std::int64_t elements, DType dtype) {
    return static_cast<std::size_t>(elements) * dtype_size(dtype);
}

}  // namespace trainctl
