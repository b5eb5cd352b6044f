#include <CLI/CLI.hpp>
#include <memory>

#include "cli/command.h"
#include "cli/external_check.h"
#include "cli/number_option.h"
#include "cli/object_storage_option.h"
#include "trainctl/config/commands.h"

namespace trainctl {
namespace {

void add_load_options(CLI::App& command, std::string& path, LoadOptions& load) {
    command.add_option("JOB", path, "job file (TOML)")->required();
    command.add_option("--set", load.set, "key=value, wins over the file; repeatable");
    command.add_option("--ranks", load.world_size, "check for this many ranks")->check(rank_count());
}

void add_check(CLI::App& config, Invocation& invocation) {
    auto options = std::make_shared<ConfigCheckOptions>();
    CLI::App* command =
        config.add_subcommand("check", "Every problem of a job file at once, with file:line:column");
    add_load_options(*command, options->path, options->load);
    command->add_flag_callback(
        "--strict", [options] { options->strictness = Strictness::Strict; },
        "what is only a warning because the job seems to be for another machine (data that are not here, "
        "directories, disk) is a failure, exit 4, 2 or 5");
    add_json_flag(*command, invocation);
    command->callback([&invocation, options] {
        invocation.action = [&invocation, options] {
            options->output = invocation.format;
            options->external = [&](const LoadedJob& job) {
                use_object_storage(invocation.files, job.spec);
                return external_problems(invocation.files, job, options->load.world_size);
            };
            return show(invocation, config_check(invocation.files, *options));
        };
    });
}

void add_show(CLI::App& config, Invocation& invocation) {
    auto options = std::make_shared<ConfigShowOptions>();
    CLI::App* command = config.add_subcommand("show", "The resolved job: every key with its final value");
    add_load_options(*command, options->path, options->load);
    command->add_flag_callback(
        "--origin", [options] { options->origin = ShowOrigin::Yes; }, "where each value came from");
    command
        ->add_option_function<std::string>(
            "--format",
            [options](const std::string& format) {
                options->format = format == "json" ? ShowFormat::Json : ShowFormat::Toml;
            },
            "toml or json")
        ->check(CLI::IsMember({"toml", "json"}));
    add_json_flag(*command, invocation);
    command->callback([&invocation, options] {
        invocation.action = [&invocation, options] {
            options->output = invocation.format;
            return show(invocation, config_show(invocation.files, *options));
        };
    });
}

void add_explain(CLI::App& config, Invocation& invocation) {
    auto key = std::make_shared<std::string>();
    CLI::App* command =
        config.add_subcommand("explain", "One key in full, or all keys that contain the text");
    command->add_option("KEY", *key, "name or part of one; default: all keys");
    add_json_flag(*command, invocation);
    command->callback([&invocation, key] {
        invocation.action = [&invocation, key] {
            return show(invocation, config_explain(*key, invocation.format));
        };
    });
}

void add_schema(CLI::App& config, Invocation& invocation) {
    CLI::App* command = config.add_subcommand("schema", "JSON Schema of job files, for editors");
    add_json_flag(*command, invocation);
    command->callback(
        [&invocation] { invocation.action = [&invocation] { return show(invocation, config_schema()); }; });
}

void add_reference(CLI::App& config, Invocation& invocation) {
    CLI::App* command =
        config.add_subcommand("reference", "All keys in tables (Markdown): configs/REFERENCE.md");
    add_json_flag(*command, invocation);
    command->callback([&invocation] {
        invocation.action = [&invocation] { return show(invocation, config_reference(invocation.format)); };
    });
}

void add_init(CLI::App& config, Invocation& invocation) {
    auto preset = std::make_shared<std::string>();
    CLI::App* command = config.add_subcommand("init", "A commented job file on stdout, to be edited");
    command->add_option("--preset", *preset, "model, for example gpt2-124m")->required();
    add_json_flag(*command, invocation);
    command->callback([&invocation, preset] {
        invocation.action = [&invocation, preset] {
            return show(invocation, config_init(*preset, invocation.format));
        };
    });
}

}  // namespace

void add_config_commands(CLI::App& app, Invocation& invocation) {
    CLI::App* config = app.add_subcommand("config", "Check, show, explain and start job files");
    config->require_subcommand(1);
    add_check(*config, invocation);
    add_show(*config, invocation);
    add_explain(*config, invocation);
    add_schema(*config, invocation);
    add_reference(*config, invocation);
    add_init(*config, invocation);
}

}  // namespace trainctl
