// The level whose tables the including source defines: AVX512_BF16 with AMX, attention only.
#pragma once

#include "ops/cpu/kernels.h"

namespace trainctl::cpu {
using Level = LevelAmx;
}  // namespace trainctl::cpu
