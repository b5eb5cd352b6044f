// Parameter lists of no particular architecture, for properties that must hold for any of them.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "trainctl/model/param.h"

namespace trainctl::test {

// `units` units of 1 to 5 tensors: odd sizes, fused groups, padded vocabulary rows, some without decay.
// Elements of one tensor: at most about max_elements.
std::vector<ParamSpec> random_params(std::mt19937& random, int units, std::int64_t max_elements);

}  // namespace trainctl::test
