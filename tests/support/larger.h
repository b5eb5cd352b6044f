// Maxima of errors. std::max and std::fmax drop a NaN that does not come last, and the check after them
// passes.
#pragma once

#include <cmath>

namespace trainctl::test {

// The larger one; NaN if either is, which is below no limit.
inline double larger(double a, double b) { return std::isnan(a) || a > b ? a : b; }

}  // namespace trainctl::test
