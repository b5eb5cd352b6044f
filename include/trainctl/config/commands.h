// `trainctl config ...` as functions from options to text: the command line only parses and prints.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trainctl/base/command_result.h"
#include "trainctl/base/file_system.h"
#include "trainctl/config/load.h"

namespace trainctl {

enum class ShowFormat { Toml, Json };
enum class ShowOrigin { No, Yes };
// Strict: what cannot be checked here is a failure, with the exit code of the first such problem.
enum class Strictness { Normal, Strict };

// Looks at what lies above this room: token files, vocabulary against data, disk space of the first
// checkpoint. It is asked about jobs with errors too, for what LoadedJob::usable() keys allow. Returns
// problems with their exit code; Severity::Unchecked for what is not there to be looked at. Places are filled
// in by the caller.
using ExternalCheck = std::function<std::vector<Problem>(const LoadedJob&)>;

struct ConfigCheckOptions {
    std::string path;
    LoadOptions load;
    OutputFormat output = OutputFormat::Text;
    Strictness strictness = Strictness::Normal;
    ExternalCheck external;  // may be empty: then its subjects count as not checked
};

struct ConfigShowOptions {
    std::string path;
    LoadOptions load;
    ShowFormat format = ShowFormat::Toml;
    ShowOrigin origin = ShowOrigin::No;
    OutputFormat output = OutputFormat::Text;  // Json: like format = Json, errors too
};

// Exit 0: no errors; else the exit code of the first error (2 for everything in the job file).
CommandResult config_check(FileSystem& files, const ConfigCheckOptions& options);
CommandResult config_show(FileSystem& files, const ConfigShowOptions& options);
// An exact name: everything about it. Else all keys that contain the text in name or help (one: in full).
// Empty: all.
CommandResult config_explain(const std::string& wanted, OutputFormat output);
CommandResult config_schema();
// Text: configs/REFERENCE.md. Json: all keys as config_explain() gives them.
CommandResult config_reference(OutputFormat output);
CommandResult config_init(const std::string& preset, OutputFormat output);

}  // namespace trainctl
