// `trainctl ckpt` verbs that change which checkpoints a run has, or which of them count. Those that delete or
// decide hold the lease of the run directory meanwhile: Exit::Fenced while the run is going on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trainctl/base/clock.h"
#include "trainctl/base/command_result.h"
#include "trainctl/base/file_system.h"
#include "trainctl/base/log.h"
#include "trainctl/rundir/process_identity.h"

namespace trainctl {

// What they work with; all must outlive the call.
struct RunServices {
    FileSystem& files;
    Clock& clock;
    ProcessTable& processes;
    Log& log;
};

enum class Execution { Real, DryRun };  // DryRun: says what would be done; writes and claims nothing

enum class PinAction { Pin, Unpin };
// Retention never removes or counts a pinned checkpoint. `path`: as for checkpoint_inspect, with `step` the
// one of that step. Needs no lease. Exit::BadInput if there is no such complete checkpoint.
CommandResult checkpoint_pin(FileSystem& files, const std::string& path, std::optional<std::int64_t> step,
                             PinAction action, OutputFormat form);

struct PruneOptions {
    std::string run;                          // run directory
    std::optional<std::int64_t> keep_latest;  // default: as the newest attempt of the run recorded
    std::optional<std::int64_t> keep_every;
    Execution execution = Execution::Real;
    OutputFormat form = OutputFormat::Text;
};
// Removes what retention (retention.h) lets go, of this run only, and says why each other stays.
// Exit::BadInput: no run there, no policy known, or a listing that lacks the newest checkpoint of the
// journal.
CommandResult checkpoint_prune(const RunServices& services, const PruneOptions& options);

struct RollbackOptions {
    std::string run;  // run directory
    std::string to;   // a step, or the name of a checkpoint directory
    Execution execution = Execution::Real;
    OutputFormat form = OutputFormat::Text;
};
// Makes an older checkpoint the current one (lineage.h) after reading every byte of it; deletes nothing.
// Exit::BadInput: it is not there, not complete or damaged; Exit::Usage: several have that step.
CommandResult checkpoint_rollback(const RunServices& services, const RollbackOptions& options);

struct CopyOptions {
    std::string from;                  // as for checkpoint_inspect
    std::optional<std::int64_t> step;  // of `from`; default: the newest complete one
    std::string to;  // copy: a directory for checkpoints, made if need be; restore: run directory
    Execution execution = Execution::Real;
    OutputFormat form = OutputFormat::Text;
};
// Copies one checkpoint, every chunk checked on the way; complete, by the protocol of a save, or not there.
// An interrupted copy is completed, a damaged one mended, a complete one left alone (every byte of it is
// read). Exit::BadInput: the source is damaged, or another checkpoint has that name there.
CommandResult checkpoint_copy(FileSystem& files, const CopyOptions& options);
// Brings a checkpoint of the run back from a copy, where it is missing or damaged: only files that are wrong
// are replaced. Exit::BadInput: as above, or of another run.
CommandResult checkpoint_restore(const RunServices& services, const CopyOptions& options);

}  // namespace trainctl
