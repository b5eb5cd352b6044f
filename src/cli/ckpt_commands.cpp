#include <CLI/CLI.hpp>
#include <memory>

#include "cli/command.h"
#include "trainctl/checkpoint/commands.h"

namespace trainctl {
namespace {

using CkptCommand = CommandResult (*)(FileSystem&, const std::string&, OutputFormat);

void add(CLI::App& ckpt, Invocation& invocation, const std::string& verb, const std::string& about,
         CkptCommand run) {
    auto path = std::make_shared<std::string>();
    CLI::App* command = ckpt.add_subcommand(verb, about);
    command->add_option("PATH", *path, "run directory, checkpoint directory, or one checkpoint")->required();
    add_json_flag(*command, invocation);
    command->callback([&invocation, path, run] {
        invocation.action = [&invocation, path, run] {
            return show(invocation, run(invocation.files, *path, invocation.format));
        };
    });
}

}  // namespace

void add_ckpt_commands(CLI::App& app, Invocation& invocation) {
    CLI::App* ckpt = app.add_subcommand("ckpt", "List, inspect and verify checkpoints");
    ckpt->require_subcommand(1);
    add(*ckpt, invocation, "list", "All checkpoints, newest first, with what is wrong with any",
        checkpoint_list);
    add(*ckpt, invocation, "inspect", "Tensors, counters and layout of one checkpoint (default: the newest)",
        checkpoint_inspect);
    add(*ckpt, invocation, "verify", "Read every byte of one checkpoint (default: the newest) and check it",
        checkpoint_verify);
}

}  // namespace trainctl
