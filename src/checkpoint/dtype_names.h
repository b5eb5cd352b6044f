// Private to the room: our dtypes in the spelling of safetensors.
#pragma once

#include <optional>
#include <string_view>

#include "trainctl/tensor/dtype.h"

namespace trainctl {

std::string_view safetensors_dtype(DType dtype);
// nullopt: none of ours.
std::optional<DType> parse_safetensors_dtype(std::string_view name);

}  // namespace trainctl
