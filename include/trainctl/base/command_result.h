// What a command answers: every verb is a function from options to text, and the command line only parses and
// prints.
#pragma once

#include <string>
#include <utility>

#include "trainctl/base/exit.h"

namespace trainctl {

enum class OutputFormat { Text, Json };

struct CommandResult {
    Exit exit = Exit::Ok;
    std::string out;  // stdout: the result, in the format asked for
    std::string err;  // stderr: problems, for people
};

// `text` for people or `json` (one document, ended by a newline), as asked.
inline std::string in_format(OutputFormat format, std::string text, std::string json) {
    if (format == OutputFormat::Text) return text;
    if (!json.ends_with('\n')) json += '\n';
    return json;
}

}  // namespace trainctl
