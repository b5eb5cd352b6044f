// Private to the room: a run directory given on the command line, and the hold on it of a command that
// changes its checkpoints.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "trainctl/checkpoint/run_commands.h"
#include "trainctl/config/job_spec.h"
#include "trainctl/rundir/journal.h"
#include "trainctl/rundir/layout.h"
#include "trainctl/rundir/lease.h"
#include "trainctl/rundir/run_identity.h"

namespace trainctl {

struct RunPlace {
    RunLayout layout;
    RunIdentity identity;
    std::optional<CheckpointSpec> recorded;  // of the newest attempt, where this build can read it
};

// `path`: a run directory, its directory of checkpoints, or one of them. Exit::BadInput if no run.json is
// there.
RunPlace find_run(FileSystem& files, const std::string& path);

// Holds the lease, under an attempt of its own, until destroyed: nothing else saves, resumes or deletes
// meanwhile. `services` must outlive it.
class RunHold {
  public:
    // Exit::Fenced naming the owner if the run is going on: at once where its process can be seen, else after
    // its next sign of life.
    RunHold(const RunServices& services, const RunPlace& place);
    ~RunHold();
    RunHold(const RunHold&) = delete;
    RunHold& operator=(const RunHold&) = delete;

    // As it was before this command.
    [[nodiscard]] const Journal& history() const { return history_; }
    [[nodiscard]] int attempt() const { return lease_->attempt(); }
    // Exit::Fenced if somebody took over; before anything that cannot be taken back.
    void confirm() { keeper_->confirm(); }
    void note(JournalEvent event, std::int64_t step, const std::string& directory, const std::string& text);

  private:
    Log& log_;
    std::unique_ptr<Lease> lease_;
    std::unique_ptr<LeaseKeeper> keeper_;
    Journal history_;
    std::unique_ptr<JournalWriter> journal_;
};

}  // namespace trainctl
