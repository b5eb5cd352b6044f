// Values as TOML text. Private to the room: others use to_toml().
#pragma once

#include <string>
#include <string_view>

#include "trainctl/config/key.h"

namespace trainctl {

// A TOML basic string with quotes; control characters escaped.
std::string toml_quote(std::string_view text);
// Reads back to the same double and is a TOML float, not an integer ("1.0").
std::string toml_float(double value);
// Seconds as "1h30m" where that is exact, else as a number.
std::string toml_duration(double seconds);
// The right-hand side of `key = ...`; "auto" where monostate means that. Precondition: else not monostate.
std::string toml_value(const Key& key, const Value& value);

}  // namespace trainctl
