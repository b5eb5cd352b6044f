#include "cli/run_directory.h"

#include <fmt/format.h>

#include "trainctl/base/hash.h"
#include "trainctl/config/write.h"
#include "trainctl/rundir/attempt.h"

namespace trainctl {
namespace {

std::string spec_hash(const JobSpec& job) {
    const std::string text = to_toml(job);
    return sha256_hex(std::as_bytes(std::span(text)));
}

void refuse_existing(FileSystem& files, const RunLayout& layout, ResumeMode resume) {
    if (resume != ResumeMode::Never) return;
    // Somebody may be running in it: then the lease says so, with its owner's name.
    const auto lease = read_lease(files, layout);
    if (lease && !lease->released) return;
    fail(Exit::Usage, fmt::format("{} already holds a run, and --resume is \"never\". To continue it: "
                                  "--resume auto (or --resume STEP). To "
                                  "start another: choose another job.run_dir.",
                                  layout.root()));
}

}  // namespace

RunDirectory::RunDirectory(Invocation& invocation, Log& log, const JobSpec& job, ResumeMode resume)
    : invocation_(invocation),
      layout_(job.run_dir, job.checkpoint.directory),
      processes_(make_linux_process_table(invocation.files)) {
    FileSystem& files = invocation.files;
    if (read_run_identity(files, layout_)) {
        refuse_existing(files, layout_, resume);
    } else if (resume == ResumeMode::Step) {
        fail(Exit::BadInput,
             fmt::format("--resume STEP: there is no run in {}. Check job.run_dir, or start a "
                         "new run without --resume.",
                         layout_.root()));
    }
    const auto on_wait = [&](const std::optional<ProcessIdentity>& owner) {
        const std::string who = owner ? fmt::format("process {} on {}", owner->pid, owner->host)
                                      : std::string("a process that left no trace");
        log.info(fmt::format("{} is held by {}: waiting up to {:.0f} s for a sign of life from it",
                             layout_.root(), who, LeaseTiming{}.silence_s));
    };
    lease_ = Lease::acquire({files, invocation.clock, *processes_, on_wait}, layout_);
    const auto existing = read_run_identity(files, layout_);
    state_ = existing ? RunState::Existing : RunState::New;
    if (existing && resume == ResumeMode::Never) {
        lease_->release();
        refuse_existing(files, layout_, resume);
    }
    identity_ = existing ? *existing : create_run(files, invocation.clock, layout_, spec_hash(job));
    history_ = read_journal(files, layout_);
    for (const std::string& problem : history_.problems) log.warn(problem);
    journal_ = std::make_unique<JournalWriter>(files, invocation.clock, layout_, lease_->attempt());
    keeper_ = std::make_unique<LeaseKeeper>(*lease_, invocation.clock, log);
}

RunDirectory::~RunDirectory() {
    keeper_.reset();
    try {
        lease_->release();
    } catch (const Error&) {
        // An unwritable directory: the next start waits for the lease's silence, or sees that this process is
        // gone.
    }
}

void RunDirectory::check() { keeper_->check(); }

}  // namespace trainctl
