#include "cli/initial_weights.h"

#include <fmt/format.h>

#include <sstream>

#include "trainctl/base/error.h"
#include "trainctl/checkpoint/agree.h"
#include "trainctl/rundir/run_record.h"

namespace trainctl {
namespace {

std::string describe(const LoadReport& report, const std::string& root) {
    const Manifest& manifest = report.manifest;
    return fmt::format("initial weights: {}, run {}, step {}, state {:016x}",
                       join_path(root, manifest.directory), manifest.run_id, manifest.step,
                       manifest.state_hash);
}

}  // namespace

WeightSource find_initial_weights(FileSystem& files, const JobSpec& job) {
    try {
        WeightSource source = find_weight_source(files, job.model.init_from);
        require_same_model(source, job.model);
        return source;
    } catch (const Error& error) {
        const std::string text = error.what();
        if (text.starts_with("model.init_from")) throw;
        fail(error.code(), "model.init_from: " + text);
    }
}

void set_initial_weights(RankContext& context, const JobSpec& job, Training& training,
                         RunCheckpoints& checkpoints, RunDirectory* directory) {
    if (job.model.init_from.empty()) return training.state().initialise(job.seed);
    FileSystem& files = context.invocation.files;
    HostChannel& control = context.world.control();
    // Which one it is, is decided once: the newest may change meanwhile.
    std::istringstream answer(agree(
        control, [] { return std::string(); },
        [&](const std::vector<std::string>&) {
            const WeightSource source = find_initial_weights(files, job);
            return fmt::format("{}\n{}\n{}", source.manifest.run_id, source.manifest.directory, source.root);
        }));
    StoreSettings settings;
    std::string name;
    std::getline(answer, settings.run_id);
    std::getline(answer, name);
    std::getline(answer, settings.root);
    CheckpointStore store(files, context.invocation.clock, settings, nullptr, {});
    const LoadReport report = checkpoints.start_from(store, name);
    at_rank_0(control, [&] {
        for (const std::string& reason : report.passed_over) context.log.warn(reason);
        const std::string text = describe(report, settings.root);
        context.log.info(text + "; moments start at zero");
        RunRecord(files, directory->layout(), directory->attempt()).set_initial_weights(text);
        JournalRecord record;
        record.event = JournalEvent::Note;
        record.text = text;
        directory->journal().append(std::move(record));
    });
}

}  // namespace trainctl
