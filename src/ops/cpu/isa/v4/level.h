// The level whose tables the including source defines: x86-64-v4.
#pragma once

#include "ops/cpu/kernels.h"

namespace trainctl::cpu {
using Level = LevelV4;
}  // namespace trainctl::cpu
