#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/checkpoint_places.h"
#include "cli/job_options.h"
#include "cli/object_storage_option.h"
#include "cli/profile_option.h"
#include "cli/rank_errors.h"
#include "cli/rank_main.h"
#include "cli/train_run.h"
#include "trainctl/base/error.h"
#include "trainctl/checkpoint/scan.h"
#include "trainctl/rundir/run_identity.h"

namespace trainctl {
namespace {

// What --resume says; where it says nothing sensible, what could have been said.
ResumeRequest resume_of(FileSystem& files, const JobSpec& job, const std::string& text) {
    try {
        return parse_resume(text);
    } catch (const Error& error) {
        const RunLayout layout = run_layout(job);
        const auto identity = read_run_identity(files, layout);
        if (!identity) throw;
        const CheckpointScan scan = scan_places(files, checkpoint_places(job), identity->run_id);
        fail(error.code(), fmt::format("{}; complete checkpoints of {}: {}", error.what(), job.run_dir,
                                       available_steps(scan, Lineage(read_journal(files, layout)))));
    }
}

}  // namespace

void add_train_command(CLI::App& app, Invocation& invocation) {
    struct Options {
        JobOptions job;
        TrainOptions train;
        std::string resume = "never";
        std::string profile;
    };
    auto options = std::make_shared<Options>();
    CLI::App* command = app.add_subcommand("train",
                                           "Train a job: alone, or as one rank under mpirun or srun. "
                                           "SIGTERM, SIGINT or SIGUSR1: save after the step and "
                                           "exit 3; SIGUSR2: save and go on");
    command->add_option("JOB", options->job.path, "job file (TOML)")->required();
    command->add_option("--set", options->job.set, "key=value, wins over the file; repeatable");
    command
        ->add_option(
            "--resume", options->resume,
            "never: refuse an existing run; auto: newest complete checkpoint; STEP: exactly that one")
        ->capture_default_str();
    command->add_option("--allow-change", options->train.allowed_changes,
                        "key that may differ from the checkpoint's job (schedule and length); repeatable");
    command->add_option(
        "--profile", options->profile,
        "steps=A:B: every rank writes what steps A to B (from 1) spent their time on to "
        "RUN/profile/aNNNN/rank-R.trace.json (Chrome trace, for ui.perfetto.dev); on a GPU also "
        "tells nsys --capture-range=cudaProfilerApi");
    add_json_flag(*command, invocation);
    command->callback([&invocation, options] {
        invocation.action = [&invocation, options] {
            const JobSpec job = load_job_or_fail(invocation.files, options->job, environment_ranks());
            use_object_storage(invocation.files, job);
            options->train.resume = resume_of(invocation.files, job, options->resume);
            options->train.profile = parse_profile(options->profile, job.steps);
            RankSettings settings;
            settings.device = job.device;
            settings.ports = parse_port_range(job.launch.port_range);
            settings.communication = job.communication;
            return rank_main(invocation, settings,
                             [&](RankContext& context) { return train_run(context, job, options->train); });
        };
    });
}

}  // namespace trainctl
