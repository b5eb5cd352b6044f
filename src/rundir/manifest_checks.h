// Private to the room: arithmetic on shapes that came from a file.
#pragma once

#include <cstdint>
#include <vector>

#include "trainctl/rundir/manifest.h"

namespace trainctl {

// Product of the extents; -1 on overflow or a negative extent.
std::int64_t checked_elements(const std::vector<std::int64_t>& shape);

}  // namespace trainctl
