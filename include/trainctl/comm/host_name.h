// The name of this machine, as it appears in messages and in the map of ranks.
#pragma once

#include <string>

namespace trainctl {

// What this machine calls itself; "unknown" if it does not say.
std::string host_name();

}  // namespace trainctl
