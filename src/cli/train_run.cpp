#include "cli/train_run.h"

#include <dnnl_version.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <sstream>

#include "cli/checkpoint_copies.h"
#include "cli/checkpoint_places.h"
#include "cli/checkpoint_space.h"
#include "cli/gpu_watch.h"
#include "cli/graph_report.h"
#include "cli/initial_weights.h"
#include "cli/profile_option.h"
#include "cli/rank_device.h"
#include "cli/run_start.h"
#include "cli/start_wait.h"
#include "cli/train_banner.h"
#include "cli/train_observer.h"
#include "cli/tune_products.h"
#include "trainctl/base/build_info.h"
#include "trainctl/base/text.h"
#include "trainctl/checkpoint/agree.h"
#include "trainctl/config/load.h"
#include "trainctl/config/model_math.h"
#include "trainctl/config/resume.h"
#include "trainctl/config/write.h"
#include "trainctl/data/corpus.h"
#include "trainctl/data/fingerprint.h"
#include "trainctl/data/preflight.h"
#include "trainctl/rundir/run_record.h"
#include "trainctl/train/device_peak.h"
#include "trainctl/train/memory_need.h"
#include "trainctl/train/rank_placement.h"
#include "trainctl/train/run_checkpoints.h"

namespace trainctl {
namespace {

constexpr std::string_view nothing_started = "stopped on request before the first step; nothing was started";
constexpr std::string_view nothing_trained =
    "stopped on request before the first step; nothing was trained. --resume auto goes on";

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
         {"cpu", context.device.info().name},
         {"cuda", cuda_version()}});
    record.set_hosts(hosts);
    record.set_data_fingerprint(to_json(data));
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

// Before anything is allocated or created: whether the ranks of each host fit into it. Returns the plan that
// says so.
DryPass require_memory(RankContext& context, RankLink& link, const RankOnDevice& made, const JobSpec& job) {
    Rank& rank = *made.rank;
    DryPass plan;
    // One line for each memory that a rank takes from: numbers, then its name.
    const auto line = [](const MemoryNeed& need, std::uint64_t available, const std::string& where) {
        return fmt::format("{} {} {} {} {} {}\n", need.batch_bytes, need.state_bytes, need.host_bytes,
                           need.staging_bytes, available, where);
    };
    const auto mine = [&] {
        plan = plan_rank(rank, job);
        const MemoryNeed need = memory_need(job, plan, batch_layout(job, rank.mesh), rank.mesh.transport);
        const std::string host = context.world.host();
        if (rank.device.info().memory == DeviceMemoryKind::Host)
            return line(need, rank.device.info().memory_bytes, host);
        // Ranks that share a GPU share its memory.
        return line({need.batch_bytes, need.state_bytes, 0, 0}, rank.device.info().memory_bytes,
                    fmt::format("GPU {} of {}", made.pci_bus, host)) +
               line({0, 0, need.host_bytes, need.staging_bytes}, context.device.info().memory_bytes, host);
    };
    const auto judge = [&](const std::vector<std::string>& answers) {
        struct Host {
            MemoryNeed need;
            std::uint64_t available = UINT64_MAX;
            int ranks = 0;
        };
        std::map<std::string, Host> by_name;
        for (const std::string& answer : answers) {
            std::istringstream lines(answer);
            MemoryNeed need;
            std::uint64_t available = 0;
            while (lines >> need.batch_bytes >> need.state_bytes >> need.host_bytes >> need.staging_bytes >>
                   available) {
                std::string where;
                std::getline(lines >> std::ws, where);
                Host& host = by_name[where];
                host.need.batch_bytes += need.batch_bytes;
                host.need.state_bytes += need.state_bytes;
                host.need.host_bytes += need.host_bytes;
                host.need.staging_bytes += need.staging_bytes;
                host.available = std::min(host.available, available);
                ++host.ranks;
            }
        }
        for (const auto& [name, host] : by_name) {
            if (host.need.bytes() > host.available)
                fail(Exit::Resource,
                     "not enough memory: " +
                         describe_lack_of_memory(host.need, host.ranks, name, host.available, job));
        }
        return std::string();
    };
    agree(link, mine, judge);
    return plan;
}

// Rank 0, under the lease.
void prepare_checkpoints(RankContext& context, CheckpointStore& store, const JobSpec& job) {
    for (const std::string& swept : store.sweep_leftovers())
        context.log.info(fmt::format("checkpoint {} was never completed and is removed", swept));
    require_space(context.invocation.files, run_layout(job).checkpoints(),
                  checkpoint_space(context.invocation.files, job, context.world.size()));
}

// How a run that was asked to stop ends; `begun` is where this attempt started.
std::string farewell(const Progress& now, const Progress& begun, const JobSpec& job) {
    if (now.step == 0)
        return "stopped before the first step, so there was nothing to save; --resume auto starts it";
    return fmt::format(
        "stopped at step {} of {}{}; continue with --resume auto", now.step, job.steps,
        now.step == begun.step ? " before another step, so there was nothing to save" : " after saving");
}

Exit stop_early(RankContext& context, std::string_view text) {
    if (context.world.rank() == 0) context.log.info(text);
    return Exit::Interrupted;
}

std::string result_json(const Progress& progress, const JobSpec& job, Exit exit, const SharedRun& run) {
    return fmt::format(
        R"({{"type":"train","v":1,"finished":{},"step":{},"steps":{},"updates_applied":{},"skipped":{},"tokens":{},)"
        R"("run_dir":{},"run_id":{},"attempt":{}}})",
        exit == Exit::Ok, progress.step, job.steps, progress.applied_updates, progress.skipped,
        progress.tokens, json_quote(job.run_dir), json_quote(run.run_id), run.attempt);
}

int count_nodes(const std::vector<std::string>& hosts) {
    return static_cast<int>(std::set<std::string>(hosts.begin(), hosts.end()).size());
}

// For the next attempt's count of failures: this one is none.
void note_end(RunDirectory& directory, Log& log) {
    JournalRecord record;
    record.event = JournalEvent::Note;
    record.text = ended_in_order;
    try {
        directory.journal().append(record);
    } catch (const Error& error) {
        log.warn(fmt::format("the journal does not say that this attempt ended in order: {}", error.what()));
    }
}

// A disk that does not answer must not keep a rank from saying what ended the run.
Exit run_or_leave(RankContext& context, Trainer& trainer, RunCheckpoints& checkpoints) {
    constexpr std::chrono::seconds patience(10);
    try {
        return trainer.run(context.stop);
    } catch (const Error& error) {
        if (!checkpoints.give_up(patience)) leave_now(context, error);
        throw;
    }
}

// The first key in which a rank's job (as TOML) differs, with both values.
std::string first_difference(const JobSpec& job, const std::string& of_rank) {
    const auto changes = compare_for_resume(job, job_or_fail(load_job_text(of_rank, "the job of a rank")));
    if (changes.empty()) return "they are written differently";
    return fmt::format("{} is {} there, {} here", changes[0].key, changes[0].wanted, changes[0].stored);
}

// Ranks that were given other jobs (by other arguments, or files of one name on different hosts) would train
// on together for a while, and nobody could say what.
void require_one_job(RankLink& link, const JobSpec& job, const std::vector<std::string>& hosts) {
    agree(
        link, [&] { return to_toml(job); },
        [&](const std::vector<std::string>& jobs) {
            for (std::size_t rank = 1; rank < jobs.size(); ++rank) {
                if (jobs[rank] == jobs[0]) continue;
                fail(Exit::Usage,
                     fmt::format(
                         "rank {} ({}) was given another job than rank 0 ({}): {}; start all ranks with the "
                         "same job file and options",
                         rank, hosts[rank], hosts[0], first_difference(job, jobs[rank])));
            }
            return std::string();
        });
}

// The fingerprint of the data, which every host must have alike.
DataFingerprint require_one_corpus(RankContext& context, RankLink& link, const Corpus& corpus,
                                   const std::vector<std::string>& hosts) {
    DataFingerprint mine;
    agree(
        link,
        [&] {
            const bool speaks_for_host = context.world.local_rank() == 0 || link.rank() == 0;
            if (speaks_for_host) mine = fingerprint(context.invocation.files, corpus);
            return mine.id;
        },
        [&](const std::vector<std::string>& ids) {
            for (std::size_t rank = 1; rank < ids.size(); ++rank) {
                if (ids[rank].empty() || ids[rank] == ids[0]) continue;
                fail(
                    Exit::BadInput,
                    fmt::format("the data files of rank {} ({}) are not those of rank 0 ({}): fingerprint {} "
                                "against {}; copy them there again",
                                rank, hosts[rank], hosts[0], ids[rank], ids[0]));
            }
            return std::string();
        });
    return mine;
}

}  // namespace

Exit train_run(RankContext& context, const JobSpec& job, const TrainOptions& options) {
    Invocation& invocation = context.invocation;
    FileSystem& files = invocation.files;
    const bool first_rank = context.world.rank() == 0;
    HostChannel& control = context.world.control();
    RankLink& link = control;
    const std::vector<std::string> hosts = link.gather(context.world.host());
    require_one_job(link, job, hosts);
    const RankOnDevice made =
        make_rank(context, job.device, job.communication, mesh_shape(job.parallel, context.world.size()),
                  &job.model, f32_products(job.precision));
    Rank& rank = *made.rank;
    at_rank_0(link, [&] {
        if (!job.parallel.tensor_across_hosts) require_tensor_groups_on_one_host(hosts, rank.mesh.shape);
    });

    // Data next: they are the most likely mistake, and nothing is created for a job that cannot run.
    std::unique_ptr<Corpus> corpus;
    std::string data_text;
    agree(link, [&] {
        corpus = std::make_unique<Corpus>(
            files, job.data, CorpusOptions{job.training.sequence_length, job.model.vocab_size, job.seed});
        const DataReport report = check_data(*corpus, job, rank.mesh.shape.data);
        data_text = describe(report);
    });
    const DataFingerprint data_print = require_one_corpus(context, link, *corpus, hosts);
    const std::string data_id = link.broadcast(data_print.id);

    DryPass plan = require_memory(context, link, made, job);
    if (asked_to_stop(control, context.stop)) return stop_early(context, nothing_started);
    std::unique_ptr<RunDirectory> directory;
    SharedRun run;
    try {
        run = open_run(context, job, options, data_id, directory);
    } catch (const Error& error) {
        if (error.code() == Exit::Interrupted) return stop_early(context, error.what());
        throw;
    }
    const RunLayout layout = run_layout(job);
    StoreSettings settings;
    const std::vector<Place> places = checkpoint_places(job);
    settings.root = places.front().root;
    settings.reach = places.front().reach;
    settings.nodes = nodes_of(hosts);
    settings.copies.assign(places.begin() + 1, places.end());
    settings.run_id = run.run_id;
    settings.attempt = run.attempt;
    settings.retention = {job.checkpoint.keep_latest, job.checkpoint.keep_every};
    if (first_rank) settings.fence = [&directory] { directory->confirm(); };
    CheckpointStore store(files, invocation.clock, settings, first_rank ? &directory->journal() : nullptr,
                          first_rank ? directory->history() : Journal{});
    at_rank_0(link, [&] {
        write_record(context, *directory, job, hosts, data_print);
        prepare_checkpoints(context, store, job);
    });
    store.sweep_nodes(link);
    if (settings.reach == Reach::Everybody) warn_unshared_directory(context, link, layout.checkpoints());
    tune_products(context, rank, job, plan.products, layout);

    const bool validates = job.training.eval_interval > 0 && corpus->windows(Split::Validation) > 0;
    std::unique_ptr<ProfileRecorder> profile;
    if (options.profile) profile = start_profile(context, rank, *options.profile, layout, run.attempt);
    std::unique_ptr<Training> training;
    agree(link, [&] {
        training = std::make_unique<Training>(rank, job, corpus->train(),
                                              validates ? &corpus->validation() : nullptr, invocation.clock,
                                              TrainingHooks{}, std::move(plan));
    });
    const DevicePeak peak =
        device_peak(rank.device.info().name, job.precision.compute,
                    measure_peak_flops(rank.device, rank.backend->ops().matmul, *rank.compute,
                                       job.precision.compute, invocation.clock));
    const auto memory = memory_by_stage(link, rank, *training);
    if (first_rank) context.log.info(start_banner(job, rank, *training, hosts, memory, data_text, peak));
    if (asked_to_stop(control, context.stop)) return stop_early(context, nothing_trained);
    PeakRate peak_of_all(peak.flops_per_s * context.world.size());

    const std::unique_ptr<TierCopies> copies =
        make_copies(context, job, settings.nodes, store, run.run_id, settings.fence);
    RunCheckpoints checkpoints(store, rank, *training,
                               {to_toml(job), data_id, layout_counters(job, rank.mesh)}, context.log,
                               copies.get());
    const RunCheckpoints::Resumed resumed = checkpoints.resume(
        options.resume, run.state,
        [&](const Manifest& stored) { require_same_run(stored, job, data_id, options.allowed_changes); });
    if (resumed.report.outcome == LoadOutcome::StartFresh) {
        set_initial_weights(context, job, *training, checkpoints, directory.get());
    } else if (first_rank && !job.model.init_from.empty()) {
        context.log.info("model.init_from is not used: the run goes on from a checkpoint of its own");
    }
    if (first_rank && options.profile)
        warn_passed_steps(context.log, *options.profile, resumed.progress.step);
    GraphReport graphs(made.accelerator.get(), first_rank ? GraphNews::Everything : GraphNews::Refusals,
                       context.log);
    const std::unique_ptr<StepObserver> observer =
        first_rank ? make_train_observer(files, join_path(layout.root(), "metrics.jsonl"), job, context.log)
                   : make_silent_observer();
    const std::unique_ptr<GpuSampler> gpu = watch_gpu(made.pci_bus, job.monitoring.gpu_interval_s,
                                                      context.log, first_rank ? Speaks::Yes : Speaks::No);
    const double causal_flops = flops_per_token(job.model, job.training.sequence_length);
    const double palm_flops = palm_flops_per_token(job.model, job.training.sequence_length);
    Trainer trainer(
        {training->runner(), training->train_data(), training->validation_data(), context.world.control(),
         &checkpoints, *observer, invocation.clock, context.log,
         [&] {
             if (first_rank) directory->check();
         },
         [&](StepRecord& record) {
             record.model_flops_per_s = record.tokens_per_s * causal_flops;
             record.palm_flops_per_s = record.tokens_per_s * palm_flops;
             if (peak_of_all.refuted_by(record.model_flops_per_s) && first_rank) {
                 context.log.warn(fmt::format(
                     "step {} is faster than the peak measured at the start, when the machine was "
                     "busy: MFU is not given any more",
                     record.step));
             }
             record.peak_flops_per_s = peak_of_all.flops_per_s();
             record.peak_source = peak.source;
             record.device_bytes = rank.device.memory_use().device_bytes;
             record.host_bytes = resident_bytes(files);
             graphs.step_closed(record.step - resumed.progress.step);
             if (record.step == resumed.progress.step + 1) {
                 const std::string verdict = memory_verdict(link, *training, record.device_bytes);
                 if (first_rank) context.log.info(verdict);
             }
         },
         run.attempt, rank.ranges, [&] { return gpu_record(gpu.get()); },
         first_rank
             ? time_between_failures_s(count_nodes(hosts), failures_in(directory->history(), run.attempt))
             : time_between_failures_s(1, {})},
        job, resumed.progress);
    const Exit exit = run_or_leave(context, trainer, checkpoints);
    if (copies) {
        copies->finish();
        trainer.take_copies();
    }
    if (first_rank) note_end(*directory, context.log);
    graphs.finish();
    if (first_rank) {
        const Progress& now = trainer.progress();
        context.log.info(exit == Exit::Ok ? fmt::format("finished at step {}, {} updates applied", now.step,
                                                        now.applied_updates)
                                          : farewell(now, resumed.progress, job));
        if (now.skipped > 0) {
            context.log.warn(fmt::format("{} of {} steps applied an update, {} were skipped",
                                         now.applied_updates, now.step, now.skipped));
        }
        if (invocation.format == OutputFormat::Json)
            print_result(invocation, {}, result_json(now, job, exit, run));
    }
    return exit;
}

}  // namespace trainctl
