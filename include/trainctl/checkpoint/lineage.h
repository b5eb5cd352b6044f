// Which checkpoints a run goes on from after `ckpt rollback`. Pure: names and the journal decide.
//
// A rollback makes an older checkpoint the current one. What was saved before it and does not lead to the
// current one (by the journal: what each attempt went on from) is set aside: no candidate for a load, not
// counted by retention, but there, so that another rollback can go back to it. What is saved after it is
// newer than all that was there, whatever the steps: attempts tell, since a rollback is an attempt of its
// own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainctl/checkpoint/scan.h"
#include "trainctl/rundir/journal.h"
#include "trainctl/rundir/layout.h"

namespace trainctl {

class Lineage {
  public:
    // Of a run that was never rolled back.
    Lineage() = default;
    explicit Lineage(const Journal& journal);

    [[nodiscard]] bool rolled_back() const { return attempt_ > 0; }
    // The step that the last rollback made current.
    [[nodiscard]] std::int64_t target_step() const { return target_.step; }
    [[nodiscard]] bool set_aside(const CheckpointName& name) const;
    [[nodiscard]] bool after_rollback(const CheckpointName& name) const { return name.attempt > attempt_; }
    // Of two that are not set aside: since a rollback, then by step and attempt, as numbers.
    [[nodiscard]] bool newer(const CheckpointName& a, const CheckpointName& b) const;
    // Indices into `complete` of those that are not set aside, newest first.
    [[nodiscard]] std::vector<std::size_t> newest_first(
        const std::vector<CompleteCheckpoint>& complete) const;

  private:
    // What an attempt contributed before another one went on from its checkpoint of step `last`.
    struct Part {
        int attempt = 0;
        std::int64_t last = 0;
    };

    int attempt_ = 0;  // of the last rollback; 0: none
    CheckpointName target_;
    std::vector<Part> parts_;  // what leads to the target, which is the last of the first part
};

}  // namespace trainctl
