// What the command files share: how a command is declared and how it prints.
#pragma once

#include <CLI/App.hpp>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "trainctl/base/clock.h"
#include "trainctl/base/command_result.h"
#include "trainctl/base/exit.h"
#include "trainctl/object_storage/routed_file_system.h"

namespace trainctl {

// One invocation. Parsing fills the options and sets `action`; nothing runs while parsing.
struct Invocation {
    RoutedFileSystem& files;  // and object stores
    Clock& clock;
    std::vector<std::string> arguments;  // the whole command line
    std::function<Exit()> action;
    OutputFormat format = OutputFormat::Text;
};

// Adds --json to a command.
void add_json_flag(CLI::App& command, Invocation& invocation);

// Writes to stdout; a closed stdout is Exit::Resource.
void print(std::string_view text);
// `text` or `json` (with a newline) as the invocation asks.
void print_result(const Invocation& invocation, std::string_view text, std::string_view json);

// Prints a command's answer and returns its exit code. With --json a failure's `err` goes out as the error
// object on stderr, beside whatever the command answers on stdout; what is said along with a success is left
// to the answer.
Exit show(const Invocation& invocation, const CommandResult& result);

void add_train_command(CLI::App& app, Invocation& invocation);
void add_smoke_command(CLI::App& app, Invocation& invocation);
void add_data_commands(CLI::App& app, Invocation& invocation);
void add_ckpt_commands(CLI::App& app, Invocation& invocation);
void add_config_commands(CLI::App& app, Invocation& invocation);
void add_bench_commands(CLI::App& app, Invocation& invocation);
void add_version_command(CLI::App& app, Invocation& invocation);

// The exit code table of every --help.
std::string exit_code_help();

}  // namespace trainctl
