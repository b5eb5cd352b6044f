#include "cli/train_run.h"

#include <dnnl_version.h>
#include <fmt/format.h>

#include "cli/run_directory.h"
#include "cli/train_banner.h"
#include "cli/train_observer.h"
#include "trainctl/base/build_info.h"
#include "trainctl/base/text.h"
#include "trainctl/checkpoint/agree.h"
#include "trainctl/checkpoint/space.h"
#include "trainctl/config/load.h"
#include "trainctl/config/model_math.h"
#include "trainctl/config/resume.h"
#include "trainctl/config/write.h"
#include "trainctl/data/corpus.h"
#include "trainctl/data/fingerprint.h"
#include "trainctl/data/preflight.h"
#include "trainctl/rundir/run_record.h"
#include "trainctl/train/device_peak.h"
#include "trainctl/train/run_checkpoints.h"

namespace trainctl {
namespace {

// What rank 0 tells the others about the run directory.
struct SharedRun {
    std::string run_id;
    int attempt = 0;
    RunState state = RunState::New;
};

// Rank 0 does `work`, every rank gets its answer; an error of rank 0 is everybody's.
std::string at_rank_0(RankLink& link, const std::function<std::string()>& work) {
    return agree(
        link, [&] { return link.rank() == 0 ? work() : std::string(); },
        [](const std::vector<std::string>& answers) { return answers.front(); });
}

SharedRun open_run(RankContext& context, RankLink& link, const JobSpec& job, ResumeMode resume,
                   const SpaceNeed& space, std::unique_ptr<RunDirectory>& directory) {
    const std::string answer = at_rank_0(link, [&] {
        const RunLayout layout(job.run_dir, job.checkpoint.directory);
        FileSystem& files = context.invocation.files;
        // Nothing is created for a run that could never save.
        if (!read_run_identity(files, layout)) {
            if (const auto lack = space_for_first_checkpoint(files, layout.checkpoints(), space))
                fail(Exit::Resource, *lack);
        }
        directory = std::make_unique<RunDirectory>(context.invocation, context.log, job, resume);
        return fmt::format("{} {} {}", directory->attempt(),
                           directory->state() == RunState::New ? "new" : "existing",
                           directory->identity().run_id);
    });
    const std::size_t first = answer.find(' ');
    const std::size_t second = answer.find(' ', first + 1);
    return {answer.substr(second + 1), std::stoi(answer.substr(0, first)),
            answer.substr(first + 1, second - first - 1) == "new" ? RunState::New : RunState::Existing};
}

void write_record(RankContext& context, const RunDirectory& directory, const JobSpec& job,
                  const std::vector<std::string>& hosts, const DataFingerprint& data) {
    const BuildInfo build = build_info();
    RunRecord record(context.invocation.files, directory.layout(), directory.attempt());
    record.set_spec(to_toml(job));
    record.set_arguments(context.invocation.arguments);
    record.set_versions(
        {{"trainctl", std::string(build.version)},
         {"revision", std::string(build.revision)},
         {"build_type", std::string(build.build_type)},
         {"compiler", std::string(build.compiler)},
         {"flags", std::string(build.flags)},
         {"onednn", fmt::format("{}.{}.{}", DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR, DNNL_VERSION_PATCH)},
         {"mpi", mpi_library_version()},
         {"cpu_isa", context.device.info().isa},
         {"cpu", context.device.info().name}});
    record.set_hosts(hosts);
    record.set_data_fingerprint(to_json(data));
}

// The job stored with the checkpoint against the one that wants to go on: what may not change is refused by
// name.
void require_same_run(const Manifest& stored, const JobSpec& job, const std::string& data_id,
                      const std::vector<std::string>& allowed) {
    const LoadedJob before = load_job_text(stored.spec, stored.directory + "/MANIFEST");
    require_resumable(compare_for_resume(job_or_fail(before), job), allowed);
    if (stored.data_fingerprint != data_id) {
        fail(Exit::BadInput, fmt::format("the training data differ from those of checkpoint {}: fingerprint "
                                         "{} stored, {} found. Bring back the "
                                         "same files, or start another run on the new ones.",
                                         stored.directory, stored.data_fingerprint, data_id));
    }
}

void warn_unshared_directory(RankContext& context, RankLink& link, const std::string& root) {
    const std::vector<int> blind = ranks_without_directory(context.invocation.files, root, link);
    if (!blind.empty()) {
        context.log.warn(fmt::format(
            "checkpoint directory {} is not the same on all nodes: rank {}{} cannot see what rank 0 "
            "writes. Put checkpoint.directory on storage that all nodes share, or a checkpoint "
            "cannot be loaded after a node is lost.",
            root, blind.front(), blind.size() > 1 ? fmt::format(" and {} more", blind.size() - 1) : ""));
    }
}

}  // namespace

Exit train_run(RankContext& context, const JobSpec& job, const TrainOptions& options) {
    Invocation& invocation = context.invocation;
    FileSystem& files = invocation.files;
    const bool first_rank = context.world.rank() == 0;
    RankLink& link = context.world.control();
    Rank rank(context.device, context.world, mesh_shape(job.parallel, context.world.size()));

    // Data first: they are the most likely mistake, and nothing is created for a job that cannot run.
    std::unique_ptr<Corpus> corpus;
    std::string data_text;
    agree(
        link,
        [&] {
            corpus = std::make_unique<Corpus>(
                files, job.data, CorpusOptions{job.training.sequence_length, job.model.vocab_size, job.seed});
            const DataReport report = check_data(*corpus, job, rank.mesh.shape.data);
            data_text = describe(report);
            return std::string();
        },
        [](const std::vector<std::string>&) { return std::string(); });
    DataFingerprint data_print;
    const std::string data_id = at_rank_0(link, [&] {
        data_print = fingerprint(files, *corpus);
        return data_print.id;
    });

    std::unique_ptr<RunDirectory> directory;
    SpaceNeed space;
    space.bytes_per_checkpoint = predicted_bytes(parameter_count(job.model), context.world.size());
    space.files_per_checkpoint = static_cast<std::uint64_t>(context.world.size()) + 2;
    const SharedRun run = open_run(context, link, job, options.resume.mode, space, directory);
    const RunLayout layout(job.run_dir, job.checkpoint.directory);
    const std::vector<std::string> hosts = link.gather(context.world.host());
    at_rank_0(link, [&] {
        write_record(context, *directory, job, hosts, data_print);
        require_space(files, layout.checkpoints(), space);
        return std::string();
    });
    warn_unshared_directory(context, link, layout.checkpoints());

    const bool validates = job.training.eval_interval > 0 && corpus->windows(Split::Validation) > 0;
    std::unique_ptr<Training> training;
    agree(
        link,
        [&] {
            training = std::make_unique<Training>(
                rank, job, corpus->train(), validates ? &corpus->validation() : nullptr, invocation.clock);
            return std::string();
        },
        [](const std::vector<std::string>&) { return std::string(); });
    const double peak = measure_peak_flops(context.device, rank.backend->ops().matmul, *rank.compute,
                                           job.precision.compute, invocation.clock);
    if (first_rank) context.log.info(start_banner(job, rank, *training, data_text, peak));

    StoreSettings settings;
    settings.root = layout.checkpoints();
    settings.run_id = run.run_id;
    settings.attempt = run.attempt;
    settings.retention = {job.checkpoint.keep_latest, job.checkpoint.keep_every};
    if (first_rank) settings.fence = [&directory] { directory->check(); };
    CheckpointStore store(files, invocation.clock, settings, first_rank ? &directory->journal() : nullptr,
                          first_rank ? directory->history() : Journal{});
    RunCheckpoints checkpoints(store, rank, *training,
                               {to_toml(job), data_id, layout_counters(job, rank.mesh)}, context.log);
    const RunCheckpoints::Resumed resumed = checkpoints.resume(
        options.resume, run.state,
        [&](const Manifest& stored) { require_same_run(stored, job, data_id, options.allowed_changes); });
    if (resumed.report.outcome == LoadOutcome::StartFresh) training->state().initialise(job.seed);
    if (resumed.progress.step > job.steps) {
        fail(Exit::Usage,
             fmt::format("the checkpoint is at step {}, but job.steps is {}: raise job.steps, or resume an "
                         "earlier checkpoint with --resume STEP",
                         resumed.progress.step, job.steps));
    }

    const std::unique_ptr<StepObserver> observer =
        first_rank ? make_train_observer(files, join_path(layout.root(), "metrics.jsonl"), job, context.log)
                   : make_silent_observer();
    const double causal_flops = flops_per_token(job.model, job.training.sequence_length);
    const double palm_flops = palm_flops_per_token(job.model, job.training.sequence_length);
    Trainer trainer({training->runner(), training->train_data(), training->validation_data(),
                     context.world.control(), &checkpoints, *observer, invocation.clock, context.log,
                     [&] {
                         if (first_rank) directory->check();
                     },
                     [&](StepRecord& record) {
                         record.model_flops_per_s = record.tokens_per_s * causal_flops;
                         record.palm_flops_per_s = record.tokens_per_s * palm_flops;
                         record.peak_flops_per_s = peak * context.world.size();
                         record.device_bytes = context.device.memory_use().device_bytes;
                         record.host_bytes = resident_bytes(files);
                         if (first_rank && record.step == resumed.progress.step + 1) {
                             context.log.info(memory_verdict(*training, record.device_bytes));
                         }
                     },
                     run.attempt},
                    job, resumed.progress);
    const Exit exit = trainer.run(context.stop);
    if (first_rank) {
        context.log.info(
            exit == Exit::Ok ? fmt::format("finished at step {}", trainer.progress().step)
            : trainer.progress().step == 0
                ? "stopped before the first step, so there was nothing to save; --resume auto starts it"
                : fmt::format("stopped at step {} of {} after saving; continue with --resume auto",
                              trainer.progress().step, job.steps));
    }
    return exit;
}

}  // namespace trainctl
