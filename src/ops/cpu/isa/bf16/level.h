// The level whose tables the including source defines: x86-64-v4 with AVX512_BF16.
#pragma once

#include "ops/cpu/kernels.h"

namespace trainctl::cpu {
using Level = LevelAvx512Bf16;
}  // namespace trainctl::cpu
