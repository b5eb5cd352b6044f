// Values, problems and keys as JSON. Only where nlohmann's header is compiled anyway.
#pragma once

#include <nlohmann/json.hpp>

#include "trainctl/config/key.h"
#include "trainctl/config/problem.h"

namespace trainctl {

using JsonDoc = nlohmann::ordered_json;

// As in TOML: "auto" for an absent Auto key, null for another absent one, durations as text.
JsonDoc json_value(const Key& key, const Value& value);
JsonDoc json_problem(const Problem& problem);
// Invalid UTF-8 is replaced, never an exception. With a final newline.
std::string json_text(const JsonDoc& json);

}  // namespace trainctl
