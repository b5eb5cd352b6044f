// What a command answers: every verb is a function from options to text, and the command line only parses and
// prints.
#pragma once

#include <string>

#include "trainctl/base/exit.h"

namespace trainctl {

enum class OutputFormat { Text, Json };

struct CommandResult {
    Exit exit = Exit::Ok;
    std::string out;  // stdout: the result, in the format asked for
    std::string err;  // stderr: problems, for people
};

}  // namespace trainctl
