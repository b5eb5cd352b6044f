// How a result meets what is already there; shared by those who compute (ops) and those who move (comm).
#pragma once

namespace trainctl {

enum class Into { Overwrite, Accumulate };

}  // namespace trainctl
