#include "trainctl/train/run_checkpoints.h"

#include <fmt/format.h>

#include "trainctl/base/text.h"
#include "trainctl/checkpoint/space.h"
#include "trainctl/config/model_math.h"
#include "trainctl/train/host_slices.h"

namespace trainctl {

std::map<std::string, std::int64_t> layout_counters(const JobSpec& job, const Mesh& mesh) {
    return {{"data", mesh.shape.data},
            {"tensor", mesh.shape.tensor},
            {"pipeline", mesh.shape.pipeline},
            {"virtual_stages", job.parallel.virtual_stages},
            {"world", mesh.shape.data * mesh.shape.tensor * mesh.shape.pipeline},
            {"zero_stage", job.memory.zero_stage},
            {"micro_batch_size", job.training.micro_batch_size}};
}

RunCheckpoints::RunCheckpoints(CheckpointStore& store, Rank& rank, Training& training,
                               CheckpointContext context, Log& log)
    : store_(store), rank_(rank), training_(training), context_(std::move(context)), log_(log) {}

void RunCheckpoints::save(const Progress& progress, SaveReason /*reason*/) {
    // The slices are read by the host: everything that may still write them must have passed.
    rank_.communication->synchronize();
    HostSlices state(rank_.device, *rank_.compute, training_.state().state_slices());
    state.download();
    Snapshot snapshot;
    snapshot.step = progress.step;
    snapshot.slices = state.host();
    snapshot.counters = to_counters(progress);
    snapshot.scalars = to_scalars(progress);
    snapshot.layout = context_.layout;
    snapshot.spec = context_.spec;
    snapshot.data_fingerprint = context_.data_fingerprint;
    const SaveReport report = store_.save(snapshot, rank_.world.control()).value();
    if (rank_.world.rank() != 0) return;
    log_.info(fmt::format("checkpoint step {}: {} in {} ({}/s), state {:016x}, {}", progress.step,
                          format_bytes(report.bytes), format_duration(report.seconds),
                          format_bytes(static_cast<std::uint64_t>(static_cast<double>(report.bytes) /
                                                                  std::max(report.seconds, 1e-9))),
                          report.state_hash, report.directory));
    for (const std::string& removed : report.removed)
        log_.info(fmt::format("checkpoint {} removed by retention", removed));
    for (const std::string& warning : report.warnings) log_.warn(warning);
}

std::string RunCheckpoints::newest() {
    const auto found = store_.newest_complete();
    if (!found) return fmt::format("There is no complete checkpoint in {}", store_.root());
    return fmt::format(
        "The newest complete checkpoint is that of step {} ({}): --resume auto goes on from there",
        found->name.step, found->path);
}

std::string RunCheckpoints::lack_of_room() {
    try {
        const std::uint64_t need =
            predicted_bytes(parameter_count(training_.job().model), rank_.world.size());
        const std::uint64_t free = store_.free_bytes();
        if (free >= need) return {};
        return fmt::format("A checkpoint takes {} bytes, {} are free in {}: free {} bytes more", need, free,
                           store_.root(), need - free);
    } catch (const Error& error) {
        return error.what();
    }
}

RunCheckpoints::Resumed RunCheckpoints::resume(const ResumeRequest& request, RunState state,
                                               const std::function<void(const Manifest&)>& accept) {
    LoadRequest wanted;
    wanted.accept = accept;
    HostSlices loaded(rank_.device, *rank_.compute, training_.state().load_slices());
    wanted.wanted = loaded.host();
    Progress required;
    required.loss_scale = LossScaler(training_.job().precision).start({});
    for (const auto& [name, value] : to_counters(required)) wanted.required_counters.push_back(name);
    Resumed resumed{store_.resume(request, state, wanted, rank_.world.control()), {}};
    if (rank_.world.rank() == 0) {
        for (const std::string& reason : resumed.report.passed_over) log_.warn(reason);
        log_.info(resumed.report.text);
    }
    if (resumed.report.outcome == LoadOutcome::StartFresh) return resumed;
    loaded.upload();
    training_.state().loaded();
    const Manifest& manifest = resumed.report.manifest;
    resumed.progress = progress_from_checkpoint(manifest.counters, manifest.scalars);
    if (rank_.world.rank() == 0 && resumed.report.state_hash) {
        log_.info(
            fmt::format("loaded step {}, state {:016x}", resumed.progress.step, *resumed.report.state_hash));
    }
    return resumed;
}

}  // namespace trainctl
