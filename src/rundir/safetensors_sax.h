// Private to the room: the JSON of a safetensors header, syntax only.
#pragma once

#include <string>
#include <string_view>

#include "trainctl/rundir/safetensors.h"

namespace trainctl {

// Fills metadata and tensors in file order. Exit::BadInput on anything that is not exactly the header's form.
SafetensorsHeader parse_safetensors_json(std::string_view text, const std::string& where);

}  // namespace trainctl
