#pragma once

#include <optional>
#include <string>

#include "config/document.h"
#include "trainctl/config/key.h"

namespace trainctl {

struct Converted {
    std::optional<Value> value;
    std::string what;  // why there is none
    std::string hint;
    Position at;
};

// The document's node as a value of `key`: types only, no bounds. An integer is also a number; one path is
// also a list of one.
Converted convert_value(const Key& key, const Node& node);

}  // namespace trainctl
