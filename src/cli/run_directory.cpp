#include "cli/run_directory.h"

#include <fmt/format.h>

#include "cli/checkpoint_places.h"
#include "trainctl/base/hash.h"
#include "trainctl/config/write.h"
#include "trainctl/rundir/attempt.h"

namespace trainctl {
namespace {

std::string spec_hash(const JobSpec& job) {
    const std::string text = to_toml(job);
    return sha256_hex(std::as_bytes(std::span(text)));
}

[[noreturn]] void refuse_existing(const RunLayout& layout) {
    fail(Exit::Usage, fmt::format("{} already holds a run, and --resume is \"never\". To continue it: "
                                  "--resume auto (or --resume STEP). To "
                                  "start another: choose another job.run_dir.",
                                  layout.root()));
}

// Names that the start of a run creates only after run.json: without it they are somebody else's, or of a run
// whose run.json was lost. An empty checkpoints/ may be a place prepared on another disk.
std::vector<std::string> taken_names(FileSystem& files, const RunLayout& layout) {
    std::vector<std::string> taken;
    for (const std::string& path : {layout.checkpoints(), layout.journal(), parent_path(layout.record(1)),
                                    parent_path(layout.profile(1)), parent_path(layout.product_choices()),
                                    join_path(layout.root(), "metrics.jsonl")}) {
        const auto status = files.status(path);
        if (!status) continue;
        const bool empty = status->directory && files.list(path).empty();
        // In another place checkpoints of many runs may lie side by side.
        const bool inside = parent_path(path) == layout.root();
        if (inside && !empty) taken.push_back(path);
    }
    return taken;
}

std::string how_to_restore_identity(const RunLayout& layout) {
    return fmt::format(
        "bring it back from a copy; without one, write into {} the line "
        R"({{"format": "trainctl-run", "version": 1, "run_id": "ID", "spec_hash": "", "created": ""}})"
        " with the run_id that `trainctl ckpt list {} --json` shows. The checkpoints are not touched.",
        layout.run_json(), layout.root());
}

}  // namespace

void require_startable(FileSystem& files, const RunLayout& layout, ResumeMode resume) {
    if (read_run_identity(files, layout)) {
        if (resume == ResumeMode::Never) refuse_existing(layout);
        return;
    }
    const std::vector<std::string> taken = taken_names(files, layout);
    if (!taken.empty() && files.status(layout.run_json())) {
        fail(Exit::BadInput,
             fmt::format("{} is damaged. {}", layout.run_json(), how_to_restore_identity(layout)));
    }
    if (resume == ResumeMode::Step) {
        fail(Exit::BadInput,
             fmt::format("--resume STEP: there is no run in {}. Check job.run_dir, or start a "
                         "new run without --resume.",
                         layout.root()));
    }
    if (taken.empty()) return;
    fail(Exit::Usage,
         fmt::format(
             "{} is not a run of trainctl (no run.json), but holds names that a run would write to: {}. "
             "Choose another job.run_dir, or move them away; other files may stay. If it was a run whose "
             "run.json was lost: {}",
             layout.root(), fmt::join(taken, ", "), how_to_restore_identity(layout)));
}

RunDirectory::RunDirectory(Invocation& invocation, Log& log, const JobSpec& job, ResumeMode resume,
                           const std::function<bool()>& asked_to_stop, std::function<void()> on_lost)
    : invocation_(invocation),
      log_(log),
      layout_(run_layout(job)),
      processes_(make_linux_process_table(invocation.files)) {
    FileSystem& files = invocation.files;
    const auto on_wait = [&](const std::optional<ProcessIdentity>& owner) {
        const std::string who = owner ? fmt::format("process {} on {}", owner->pid, owner->host)
                                      : std::string("a process that left no trace");
        log.info(fmt::format("{} is held by {}: waiting up to {:.0f} s for a sign of life from it",
                             layout_.root(), who, LeaseTiming{}.silence_s));
    };
    lease_ = Lease::acquire({files, invocation.clock, *processes_, on_wait, asked_to_stop}, layout_);
    const auto existing = read_run_identity(files, layout_);
    state_ = existing ? RunState::Existing : RunState::New;
    if (existing && resume == ResumeMode::Never) {
        lease_->release();
        refuse_existing(layout_);
    }
    identity_ = existing ? *existing : create_run(files, invocation.clock, layout_, spec_hash(job));
    lease_->keep(layout_.run_json());
    history_ = read_journal(files, layout_);
    for (const std::string& problem : history_.problems) log.warn(problem);
    journal_ = std::make_unique<JournalWriter>(files, invocation.clock, layout_, lease_->attempt());
    constexpr double poll_s = 0.25;
    keeper_ = std::make_unique<LeaseKeeper>(*lease_, invocation.clock, log, poll_s, std::move(on_lost));
}

RunDirectory::~RunDirectory() {
    keeper_.reset();
    try {
        const std::vector<std::string> lost = lease_->release();
        if (!lost.empty()) log_.error(describe_lost(layout_.root(), lost));
    } catch (const Error&) {
        // An unwritable directory: the next start waits for the lease's silence, or sees that this process is
        // gone.
    }
}

void RunDirectory::check() { keeper_->check(); }

void RunDirectory::confirm() { keeper_->confirm(); }

}  // namespace trainctl
