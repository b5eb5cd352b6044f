// The loop: steps, evaluation, saves, stops; every decision agreed over all ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "trainctl/base/error.h"
#include "trainctl/base/log.h"
#include "trainctl/comm/host_channel.h"
#include "trainctl/observe/step_record.h"
#include "trainctl/train/progress.h"
#include "trainctl/train/step_runner.h"
#include "trainctl/train/stop_flag.h"

namespace trainctl {

enum class SaveReason { Interval, Request, Stop, End };

// Saves the whole state of a run; collective over all ranks, the same outcome on all of them.
class CheckpointWriter {
  public:
    virtual ~CheckpointWriter() = default;
    // Exit::Resource (disk full, read-only) leaves the previous checkpoint current; anything else is fatal.
    // Exit::Diverged if the state is not finite: nothing was saved.
    virtual void save(const Progress& progress, SaveReason reason) = 0;
    // Every step that was closed: what was saved before proves good by what follows.
    virtual void closed(StepOutcome outcome) = 0;
    // Rank 0, for people: which checkpoint a resume would start from.
    virtual std::string newest() = 0;
    // Rank 0, for people: what it takes that a save finds room; empty if there is enough.
    virtual std::string lack_of_room() = 0;
};

// Told about closed steps and evaluations. Every rank has one; only rank 0's does anything visible.
class StepObserver {
  public:
    virtual ~StepObserver() = default;
    virtual void step(const StepRecord& record) = 0;
    virtual void evaluation(const EvaluationRecord& record) = 0;
};

struct TrainerParts {
    StepRunner& runner;
    Loader& train_data;
    Loader* validation_data;  // nullptr: none
    HostChannel& control;
    CheckpointWriter* checkpoints;  // nullptr: nothing is ever saved
    StepObserver& observer;
    Clock& clock;
    Log& log;
    // Called at every step boundary on every rank; throws to end the run (a lost lease: Exit::Fenced).
    std::function<void()> check;
    // Fills what the trainer cannot know: rates' peaks, memory.
    std::function<void(StepRecord&)> annotate;
    std::int64_t attempt = 0;  // of the run, from 1: goes into every record
};

// Thread rule: the rank's compute thread; collective.
class Trainer {
  public:
    Trainer(const TrainerParts& parts, const JobSpec& job, const Progress& start);

    // Until job.steps (Exit::Ok), a stop request on any rank (Exit::Interrupted, after saving), or a failure
    // (thrown: Exit::Diverged after too many non-finite steps, or if no update was applied in the whole run;
    // Exit::BadInput, after saving, if data cannot be read).
    Exit run(StopFlag& stop);

    // One step, taken by all ranks; what run() does between its decisions.
    StepResult step();
    [[nodiscard]] const Progress& progress() const { return progress_; }

  private:
    struct Decisions {
        bool stop = false;
        bool save = false;
    };
    Decisions agree(StopFlag& stop, const std::optional<Error>& problem);
    [[noreturn]] void end_without_data(const std::optional<Error>& problem);
    std::string how_to_go_on();
    bool interval_passed();
    // `used`: the loss scale of the closed step.
    void close(const StepResult& result, const std::optional<LossScale>& used);
    void report_loss_scale(const StepResult& result, const std::optional<LossScale>& used);
    void judge_nonfinite(const StepResult& result);
    void judge_updates() const;
    bool evaluate_if_due(StopFlag& stop);
    void save(SaveReason reason);
    bool may_fail(const Error& error, SaveReason reason);
    Exit stop_with_checkpoint();

    TrainerParts parts_;
    JobSpec job_;
    Progress progress_;
    std::int64_t saved_step_;
    double retry_at_s_ = 0.0;    // monotonic: a failed save is not tried again before
    double saved_at_s_;          // monotonic, of the newest save (or the start)
    double checkpoint_s_ = 0.0;  // time of saves and evaluations since the last closed step
    double evaluation_s_ = 0.0;
};

}  // namespace trainctl
