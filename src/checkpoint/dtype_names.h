// Private to the room: our dtypes in the spelling of safetensors.
#pragma once

#include <string_view>

#include "trainctl/tensor/dtype.h"

namespace trainctl {

std::string_view safetensors_dtype(DType dtype);

}  // namespace trainctl
