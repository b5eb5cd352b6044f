#include <CLI/CLI.hpp>
#include <memory>

#include "cli/command.h"
#include "cli/number_option.h"
#include "trainctl/checkpoint/commands.h"
#include "trainctl/checkpoint/run_commands.h"

namespace trainctl {
namespace {

using CkptCommand = CommandResult (*)(FileSystem&, const std::string&, OutputFormat);

constexpr const char* path_help = "run directory, checkpoint directory, or one checkpoint";
constexpr const char* run_help = "run directory (job.run_dir)";
constexpr const char* dry_run_help = "say what would be done, and do nothing";

void add_reading(CLI::App& ckpt, Invocation& invocation, const std::string& verb, const std::string& about,
                 CkptCommand run) {
    auto path = std::make_shared<std::string>();
    CLI::App* command = ckpt.add_subcommand(verb, about);
    command->add_option("PATH", *path, path_help)->required();
    add_json_flag(*command, invocation);
    command->callback([&invocation, path, run] {
        invocation.action = [&invocation, path, run] {
            return show(invocation, run(invocation.files, *path, invocation.format));
        };
    });
}

void add_diff(CLI::App& ckpt, Invocation& invocation) {
    struct Options {
        std::string a;
        std::string b;
        DiffDepth depth = DiffDepth::Hashes;
    };
    auto options = std::make_shared<Options>();
    CLI::App* command = ckpt.add_subcommand(
        "diff", "What differs between two checkpoints; exit 0 if they hold the same state, else 4");
    command->add_option("A", options->a, path_help)->required();
    command->add_option("B", options->b, path_help)->required();
    command->add_flag_callback(
        "--values", [options] { options->depth = DiffDepth::Values; },
        "read tensors whose hashes differ, and say by how much");
    add_json_flag(*command, invocation);
    command->callback([&invocation, options] {
        invocation.action = [&invocation, options] {
            return show(invocation, checkpoint_diff(invocation.files, options->a, options->b, options->depth,
                                                    invocation.format));
        };
    });
}

// A command that changes a run: `run` gets what it works with.
void set_action(CLI::App& command, Invocation& invocation,
                const std::function<CommandResult(const RunServices&)>& run) {
    command.callback([&invocation, run] {
        invocation.action = [&invocation, run] {
            const auto processes = make_linux_process_table(invocation.files);
            DescriptorLog log(2, LogLevel::Info, {});
            return show(invocation, run({invocation.files, invocation.clock, *processes, log}));
        };
    });
}

void add_dry_run(CLI::App& command, Execution& execution) {
    command.add_flag_callback(
        "--dry-run", [&execution] { execution = Execution::DryRun; }, dry_run_help);
}

void add_pin(CLI::App& ckpt, Invocation& invocation, const std::string& verb, const std::string& about,
             PinAction action) {
    struct Options {
        std::string path;
        std::optional<std::int64_t> step;
    };
    auto options = std::make_shared<Options>();
    CLI::App* command = ckpt.add_subcommand(verb, about);
    command->add_option("PATH", options->path, path_help)->required();
    command->add_option("--step", options->step, "the one of this step (default: the newest)")
        ->check(at_least(0));
    add_json_flag(*command, invocation);
    command->callback([&invocation, options, action] {
        invocation.action = [&invocation, options, action] {
            return show(invocation, checkpoint_pin(invocation.files, options->path, options->step, action,
                                                   invocation.format));
        };
    });
}

void add_prune(CLI::App& ckpt, Invocation& invocation) {
    auto options = std::make_shared<PruneOptions>();
    CLI::App* command = ckpt.add_subcommand(
        "prune", "Remove what retention lets go now, by the run's own policy or another one");
    command->add_option("RUN", options->run, run_help)->required();
    command->add_option("--keep-latest", options->keep_latest, "newest ones that stay")->check(at_least(1));
    command->add_option("--keep-every", options->keep_every, "multiples of this stay; 0: none")
        ->check(at_least(0));
    add_dry_run(*command, options->execution);
    add_json_flag(*command, invocation);
    set_action(*command, invocation, [&invocation, options](const RunServices& services) {
        options->form = invocation.format;
        return checkpoint_prune(services, *options);
    });
}

void add_rollback(CLI::App& ckpt, Invocation& invocation) {
    auto options = std::make_shared<RollbackOptions>();
    CLI::App* command = ckpt.add_subcommand(
        "rollback", "Make an older checkpoint the current one; newer ones are set aside, not deleted");
    command->add_option("RUN", options->run, run_help)->required();
    command->add_option("--to", options->to, "its step, or the name of its directory")->required();
    add_dry_run(*command, options->execution);
    add_json_flag(*command, invocation);
    set_action(*command, invocation, [&invocation, options](const RunServices& services) {
        options->form = invocation.format;
        return checkpoint_rollback(services, *options);
    });
}

std::shared_ptr<CopyOptions> add_copying(CLI::App& command, const char* target, const char* target_help) {
    auto options = std::make_shared<CopyOptions>();
    command.add_option("FROM", options->from, path_help)->required();
    command.add_option(target, options->to, target_help)->required();
    command.add_option("--step", options->step, "the one of this step in FROM (default: the newest)")
        ->check(at_least(0));
    add_dry_run(command, options->execution);
    return options;
}

void add_copy(CLI::App& ckpt, Invocation& invocation) {
    CLI::App* command = ckpt.add_subcommand(
        "copy", "Copy one checkpoint to another directory, every chunk checked on the way");
    auto options = add_copying(*command, "TO_ROOT", "directory for copies; made if need be");
    add_json_flag(*command, invocation);
    set_action(*command, invocation, [&invocation, options](const RunServices& services) {
        options->form = invocation.format;
        return checkpoint_copy(services.files, *options);
    });
}

void add_restore(CLI::App& ckpt, Invocation& invocation) {
    CLI::App* command = ckpt.add_subcommand(
        "restore", "Bring a checkpoint of a run back from a copy, where it is missing or damaged");
    auto options = add_copying(*command, "RUN", run_help);
    add_json_flag(*command, invocation);
    set_action(*command, invocation, [&invocation, options](const RunServices& services) {
        options->form = invocation.format;
        return checkpoint_restore(services, *options);
    });
}

}  // namespace

void add_ckpt_commands(CLI::App& app, Invocation& invocation) {
    CLI::App* ckpt = app.add_subcommand("ckpt", "List, check, keep and remove checkpoints");
    ckpt->require_subcommand(1);
    add_reading(*ckpt, invocation, "list", "All checkpoints, newest first, with what is wrong with any",
                checkpoint_list);
    add_reading(*ckpt, invocation, "inspect",
                "Tensors, counters and layout of one checkpoint (default: the newest)", checkpoint_inspect);
    add_reading(*ckpt, invocation, "verify",
                "Read every byte of one checkpoint (default: the newest) and check it", checkpoint_verify);
    add_diff(*ckpt, invocation);
    add_pin(*ckpt, invocation, "pin", "Keep one checkpoint for ever, whatever retention says",
            PinAction::Pin);
    add_pin(*ckpt, invocation, "unpin", "Let retention judge one checkpoint again", PinAction::Unpin);
    add_prune(*ckpt, invocation);
    add_rollback(*ckpt, invocation);
    add_copy(*ckpt, invocation);
    add_restore(*ckpt, invocation);
}

}  // namespace trainctl
