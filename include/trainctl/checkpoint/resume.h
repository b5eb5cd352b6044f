// What --resume means, decided by rank 0 from what lies on disk. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "trainctl/checkpoint/lineage.h"
#include "trainctl/checkpoint/scan.h"
#include "trainctl/rundir/journal.h"

namespace trainctl {

enum class ResumeMode {
    Never,  // default: an existing run is refused
    Auto,   // newest complete checkpoint; from the start, saying so, if none was ever committed
    Step,   // exactly that one
};

struct ResumeRequest {
    ResumeMode mode = ResumeMode::Never;
    std::int64_t step = -1;  // Step only
};

// "never", "auto" or a step number; Exit::Usage otherwise.
ResumeRequest parse_resume(std::string_view text);

enum class RunState { New, Existing };  // was there a run.json before this start?

struct ResumeDecision {
    std::vector<std::size_t>
        candidates;    // indices into scan.complete, in the order to try; empty: start at step 0
    std::string text;  // for the log
    // What to say, before the reasons, if none of them loads; empty: which others may be asked for.
    std::string otherwise = {};
};

// Checkpoints that a rollback set aside (lineage.h) are no candidates.
// Exit::Usage: an existing run and Never. Exit::BadInput: progress was made but nothing is complete, or the
// step asked for is not there (the message lists which are, and why others were rejected).
ResumeDecision decide_resume(const ResumeRequest& request, RunState state, const CheckpointScan& scan,
                             const Journal& journal);

// For the start of a run that exists, before anything long: throws what decide_resume would, or what `accept`
// says to the first candidate. A load decides again, for it may come to another one.
void check_resume(const ResumeRequest& request, const CheckpointScan& scan, const Journal& journal,
                  const std::function<void(const Manifest&)>& accept);

// The newest eight, "30, 20 (suspect), 10", or "none"; those that a rollback set aside are not among them,
// but named after them.
std::string available_steps(const CheckpointScan& scan, const Lineage& lineage);
// What may be asked for instead: the complete steps but those of the indices `tried`.
std::string other_steps(const CheckpointScan& scan, const std::vector<std::size_t>& tried,
                        const Lineage& lineage);
// One line per rejected checkpoint that was committed once.
std::string describe_rejected(const std::vector<RejectedCheckpoint>& rejected);

}  // namespace trainctl
