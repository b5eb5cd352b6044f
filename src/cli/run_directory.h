// Rank 0's hold on the run directory for the length of one attempt.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "cli/rank_main.h"
#include "trainctl/checkpoint/resume.h"
#include "trainctl/rundir/journal.h"
#include "trainctl/rundir/lease.h"
#include "trainctl/rundir/process_identity.h"
#include "trainctl/rundir/run_identity.h"

namespace trainctl {

// What speaks against a start there before anything is claimed; reads only. Exit::Usage: a run exists and
// `resume` is Never, or the directory holds files under names of ours that no run of ours wrote.
// Exit::BadInput: a step is asked for and there is no run.
void require_startable(FileSystem& files, const RunLayout& layout, ResumeMode resume);

// Exists at rank 0 only. Holds the lease until destroyed.
class RunDirectory {
  public:
    // Exit::Fenced naming the owner if somebody runs in it; Exit::Usage if the run exists and `resume` is
    // Never; Exit::Interrupted if `asked_to_stop` says so during the wait for a silent owner. `on_lost`:
    // called, by any thread, after files of the run that somebody removed were written again.
    RunDirectory(Invocation& invocation, Log& log, const JobSpec& job, ResumeMode resume,
                 const std::function<bool()>& asked_to_stop, std::function<void()> on_lost);
    ~RunDirectory();
    RunDirectory(const RunDirectory&) = delete;
    RunDirectory& operator=(const RunDirectory&) = delete;

    [[nodiscard]] const RunLayout& layout() const { return layout_; }
    [[nodiscard]] int attempt() const { return lease_->attempt(); }
    [[nodiscard]] const RunIdentity& identity() const { return identity_; }
    [[nodiscard]] RunState state() const { return state_; }
    [[nodiscard]] const Journal& history() const { return history_; }
    JournalWriter& journal() { return *journal_; }
    // Exit::Fenced once the lease was lost.
    void check();
    // The same after a look at the directory itself; before commits.
    void confirm();

  private:
    Invocation& invocation_;
    Log& log_;
    RunLayout layout_;
    std::unique_ptr<ProcessTable> processes_;
    RunState state_ = RunState::New;
    Journal history_;
    std::unique_ptr<Lease> lease_;
    std::unique_ptr<LeaseKeeper> keeper_;
    RunIdentity identity_;
    std::unique_ptr<JournalWriter> journal_;
};

}  // namespace trainctl
