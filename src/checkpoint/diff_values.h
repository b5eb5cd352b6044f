// Private to the room: two stored tensors of one shape and dtype, element by element.
#pragma once

#include <cstdint>
#include <string>

#include "trainctl/base/file_system.h"
#include "trainctl/rundir/manifest.h"

namespace trainctl {

struct ValueDifference {
    std::int64_t elements = 0;
    std::int64_t differing = 0;   // other bits
    std::int64_t not_finite = 0;  // of those: the difference is no finite number, so it is not in the maxima
    double max_absolute = 0.0;
    double max_relative = 0.0;  // to the larger of the two magnitudes
};

// Reads both, checked, some MiB at a time, however they are sliced. `dtype` is one of ours. Exit::BadInput on
// damage.
ValueDifference compare_values(FileSystem& files, const std::string& path_a, const Manifest& a,
                               const std::string& path_b, const Manifest& b, const std::string& tensor);

}  // namespace trainctl
