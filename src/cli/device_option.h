// The option --device of commands that have no job file.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "trainctl/config/job_spec.h"

namespace trainctl {

// `value` must outlive the command.
void add_device_option(CLI::App& command, std::string& value);

DeviceKind device_kind(const std::string& value);

}  // namespace trainctl
