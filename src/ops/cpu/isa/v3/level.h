// The level whose tables the including source defines: x86-64-v3.
#pragma once

#include "ops/cpu/kernels.h"

namespace trainctl::cpu {
using Level = LevelV3;
}  // namespace trainctl::cpu
