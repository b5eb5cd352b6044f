#include "trainctl/cli/cli.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cstdio>
#include <new>

#include "cli/command.h"
#include "cli/rank_errors.h"
#include "trainctl/base/error.h"
#include "trainctl/base/text.h"
#include "trainctl/object_storage/routed_file_system.h"

namespace trainctl {
namespace {

// Verbs of the product that this build does not have yet: known, so that the answer is not "did you mean".
constexpr std::array<std::string_view, 10> later_commands = {
    "launch", "plan", "check", "verify", "slurm", "status", "report", "stop", "eval", "generate"};

std::vector<std::string> names_below(const CLI::App& app) {
    std::vector<std::string> names;
    for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
        names.push_back(command->get_name());
    }
    for (const CLI::Option* option : app.get_options()) {
        for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
    return names;
}

// The deepest command that was recognised: its names are what a misspelt word was meant to be.
const CLI::App& deepest(const CLI::App& app) {
    const CLI::App* at = &app;
    while (!at->get_subcommands().empty()) at = at->get_subcommands().back();
    return *at;
}

std::string command_path(const CLI::App& command) {
    const CLI::App* parent = command.get_parent();
    return parent == nullptr ? command.get_name() : command_path(*parent) + " " + command.get_name();
}

std::string first_unexpected(const CLI::App& app) {
    std::vector<std::string> extras = app.remaining(true);
    if (extras.empty()) return "";
    return extras.front();
}

Error usage_error(const CLI::App& app, const CLI::ParseError& problem) {
    const CLI::App& at = deepest(app);
    const std::string path = command_path(at);
    std::string text = problem.what();
    std::string hint = fmt::format("run `{} --help`", path);
    const std::string word = first_unexpected(app);
    if (!word.empty()) {
        for (const std::string_view later : later_commands) {
            if (word == later && &at == &app) {
                return {
                    Exit::Usage,
                    fmt::format("`trainctl {}` is not in this build\n  hint: `trainctl --help` lists what is",
                                word),
                    Where::here()};
            }
        }
        text = fmt::format("`{}` does not know '{}'", path, word);
        const std::string_view key = std::string_view(word).substr(0, word.find('='));
        if (const auto near = nearest_name(key, names_below(at)))
            hint = fmt::format("did you mean `{}`?", *near);
    } else if (dynamic_cast<const CLI::RequiredError*>(&problem) != nullptr &&
               !at.get_subcommands([](const CLI::App*) { return true; }).empty()) {
        std::string verbs;
        for (const CLI::App* command : at.get_subcommands([](const CLI::App*) { return true; })) {
            verbs += (verbs.empty() ? "" : ", ") + command->get_name();
        }
        text = fmt::format("`{}` needs a command: {}", path, verbs);
    }
    return {Exit::Usage, fmt::format("{}\n  hint: {}", text, hint), Where::here()};
}

bool wants_json(int argc, char** argv) {
    for (int index = 1; index < argc; ++index) {
        if (std::string_view(argv[index]) == "--json") return true;
    }
    return false;
}

}  // namespace

void add_json_flag(CLI::App& command, Invocation& invocation) {
    command.add_flag_callback(
        "--json", [&invocation] { invocation.format = OutputFormat::Json; },
        "one JSON document on stdout; errors as JSON too");
}

void print(std::string_view text) {
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
        fail(Exit::Resource,
             "cannot write to standard output: it was closed or its disk is full; keep its reader open, or "
             "send it to a file on a disk with room");
    }
}

void print_result(const Invocation& invocation, std::string_view text, std::string_view json) {
    print(in_format(invocation.format, std::string(text), std::string(json)));
}

Exit show(const Invocation& invocation, const CommandResult& result) {
    const bool text_form = invocation.format == OutputFormat::Text;
    if (text_form && !result.err.empty() && std::fputs(result.err.c_str(), stderr) < 0) return Exit::Resource;
    if (!result.out.empty()) print(result.out);
    if (!text_form && result.exit != Exit::Ok) {
        std::string text = result.err;
        if (text.ends_with('\n')) text.pop_back();
        constexpr std::string_view label = "error: ";
        if (text.starts_with(label)) text.erase(0, label.size());
        report_shared_error(Error(result.exit, text, Where::here()), invocation.format);
    }
    return result.exit;
}

std::string exit_code_help() {
    std::string text = "exit codes:";
    for (int code = 0; code <= static_cast<int>(Exit::Fenced); ++code) {
        text += fmt::format(" {} {}{}", code, exit_name(static_cast<Exit>(code)), code < 8 ? "," : "");
    }
    return text + "; 128+N: a second signal N";
}

int cli_main(int argc, char** argv) {
    const OutputFormat error_format = wants_json(argc, argv) ? OutputFormat::Json : OutputFormat::Text;
    try {
        const auto local = make_posix_file_system();
        SystemClock clock;
        RoutedFileSystem files(*local, clock, process_environment());
        Invocation invocation{files, clock, {argv, argv + argc}, {}, OutputFormat::Text};
        CLI::App app("trainctl trains GPT- and Llama-style Transformers on clusters you own or rent.",
                     "trainctl");
        app.require_subcommand(1);
        app.footer(exit_code_help());
        add_train_command(app, invocation);
        add_smoke_command(app, invocation);
        add_data_commands(app, invocation);
        add_ckpt_commands(app, invocation);
        add_config_commands(app, invocation);
        add_bench_commands(app, invocation);
        add_version_command(app, invocation);
        for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
            command->footer(exit_code_help());
        try {
            app.parse(argc, argv);
        } catch (const CLI::CallForHelp&) {
            print(deepest(app).help("", CLI::AppFormatMode::Normal));
            return static_cast<int>(Exit::Ok);
        } catch (const CLI::ParseError& problem) {
            throw usage_error(app, problem);
        }
        return static_cast<int>(invocation.action());
    } catch (const Error& error) {
        report_error(error, error_format);
        return static_cast<int>(error.code());
    } catch (const std::bad_alloc&) {
        const Error error(Exit::Resource,
                          "out of host memory: lower training.micro_batch_size or use fewer ranks per host",
                          Where::here());
        report_error(error, error_format);
        return static_cast<int>(error.code());
    } catch (const std::exception& problem) {
        const Error error(Exit::Internal, problem.what(), Where::here());
        report_error(error, error_format);
        return static_cast<int>(error.code());
    }
}

}  // namespace trainctl
