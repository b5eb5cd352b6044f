// The answer of a `config` command that cannot give the one it was asked for. Private to the room.
#pragma once

#include <vector>

#include "trainctl/base/command_result.h"
#include "trainctl/config/problem.h"

namespace trainctl {

// The problems as text and, if asked, as {"ok": false, "exit": ..., "problems": [...]}; the exit code is that
// of the first error.
CommandResult config_failed(const std::vector<Problem>& problems, OutputFormat output);

}  // namespace trainctl
