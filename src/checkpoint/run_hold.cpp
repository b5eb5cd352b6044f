#include "checkpoint/run_hold.h"

#include <fmt/format.h>

#include <utility>

#include "checkpoint/find_root.h"
#include "checkpoint/run_line.h"
#include "trainctl/base/error.h"

namespace trainctl {
namespace {

// Where the run keeps its checkpoints, though nothing may be left there; empty: in the run directory.
std::string checkpoints_of(FileSystem& files, const std::string& run) {
    std::string recorded = recorded_root(files, RunLayout(run));
    const bool same_from_everywhere = recorded.starts_with('/') || recorded.find("://") != std::string::npos;
    if (same_from_everywhere && !files.status(recorded)) return recorded;
    const std::string found = find_checkpoint_root(files, run);
    return found == run ? std::string() : found;
}

}  // namespace

RunPlace find_run(FileSystem& files, const std::string& path) {
    const auto run = enclosing_run(files, path);
    if (!run) {
        fail(Exit::BadInput,
             fmt::format("{}: expected a run directory (job.run_dir), found no run.json there; a "
                         "directory of checkpoints elsewhere does not say which run it belongs to",
                         path));
    }
    const std::string& root = *run;
    const auto identity = read_run_identity(files, RunLayout(root));
    if (!identity)
        fail(Exit::BadInput,
             fmt::format("{} was torn by a crash while it was created: there is no run in {} yet",
                         RunLayout(root).run_json(), root));
    const auto job = recorded_job(files, RunLayout(root));
    RunPlace place{RunLayout(root, checkpoints_of(files, root)), *identity, {}};
    if (job && job->usable({"checkpoint.keep_latest", "checkpoint.keep_every"}))
        place.recorded = job->spec.checkpoint;
    return place;
}

RunHold::RunHold(const RunServices& services, const RunPlace& place) : log_(services.log) {
    const RunLayout& layout = place.layout;
    refuse_live_owner(services.files, services.processes, layout);
    const auto on_wait = [&](const std::optional<ProcessIdentity>& owner) {
        log_.info(fmt::format("{} may be in use by {}: waiting up to {:.0f} s for a sign of life from it",
                              layout.root(),
                              owner ? fmt::format("process {} on {}", owner->pid, owner->host)
                                    : std::string("a process that left no trace"),
                              LeaseTiming{}.silence_s));
    };
    lease_ = Lease::acquire({services.files, services.clock, services.processes, on_wait, {}}, layout);
    lease_->keep(layout.run_json());
    history_ = read_journal(services.files, layout);
    journal_ = std::make_unique<JournalWriter>(services.files, services.clock, layout, lease_->attempt());
    keeper_ = std::make_unique<LeaseKeeper>(*lease_, services.clock, log_);
}

RunHold::~RunHold() {
    keeper_.reset();
    try {
        note(JournalEvent::Note, -1, "", std::string(ended_in_order));
        lease_->release();
    } catch (const std::exception& error) {
        // The next start waits for the lease's silence, or sees that this process is gone.
        log_.warn(fmt::format("the lease of the run directory was not given back: {}", error.what()));
    }
}

void RunHold::note(JournalEvent event, std::int64_t step, const std::string& directory,
                   const std::string& text) {
    JournalRecord record;
    record.event = event;
    record.step = step;
    record.directory = directory;
    record.text = text;
    journal_->append(std::move(record));
}

}  // namespace trainctl
