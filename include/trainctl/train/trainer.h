// The loop: steps, evaluation, saves, stops; every decision agreed over all ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainctl/base/error.h"
#include "trainctl/base/log.h"
#include "trainctl/checkpoint/checkpoint_store.h"
#include "trainctl/comm/host_channel.h"
#include "trainctl/observe/step_record.h"
#include "trainctl/train/progress.h"
#include "trainctl/train/save_interval.h"
#include "trainctl/train/step_runner.h"
#include "trainctl/train/stop_flag.h"

namespace trainctl {

// Saves the whole state of a run, one save at a time; the same outcome on all ranks.
class CheckpointWriter {
  public:
    virtual ~CheckpointWriter() = default;
    // Collective: begins to save the state as it is now. Training may go on when this returns. No save may be
    // under way.
    virtual void begin(const Progress& progress) = 0;
    // Whether this rank's part of the save is still being written. Cheap, asked at every step boundary.
    virtual bool busy() = 0;
    // The end of the save that was begun, waited for at most `patience_s` (nullopt: not yet). No message
    // between the ranks' compute threads: all ranks ask when none is busy, or one that is about to fail asks
    // alone. Exit::Resource of Scope::Shared (disk full, read-only) leaves the previous checkpoint current;
    // anything else is fatal. Exit::Diverged if the state is not finite: nothing was saved.
    virtual std::optional<SaveReport> finish(double patience_s) = 0;
    // Every step that was closed: what was saved before proves good by what follows.
    virtual void closed(StepOutcome outcome) = 0;
    // Rank 0, for people: which checkpoint a resume would start from.
    virtual std::string newest() = 0;
    // Rank 0, for people: what it takes that a save finds room; empty if there is enough.
    virtual std::string lack_of_room() = 0;
    // Rank 0: copies in further places that came to their end since the last call. Elsewhere nothing.
    virtual std::vector<CopyRecord> copied() { return {}; }
};

// Told about closed steps and evaluations. Every rank has one; only rank 0's does anything visible.
class StepObserver {
  public:
    virtual ~StepObserver() = default;
    virtual void step(const StepRecord& record) = 0;
    virtual void evaluation(const EvaluationRecord& record) = 0;
    virtual void checkpoint(const CheckpointRecord& record) = 0;
    virtual void copy(const CopyRecord& record) = 0;
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
    Ranges* ranges = nullptr;  // optional
    // This rank's GPU, as it was sampled last; must not wait. Null: there is none, or it is not watched.
    std::function<GpuRecord()> gpu = {};
    // Rank 0, for checkpoint.interval = "auto".
    double between_failures_s = time_between_failures_s(1, {});
};

// Thread rule: the rank's compute thread; collective.
class Trainer {
  public:
    Trainer(const TrainerParts& parts, const JobSpec& job, const Progress& start);

    // Until job.steps (Exit::Ok), a stop request on any rank (Exit::Interrupted, after saving), or a failure
    // (thrown: Exit::Diverged after too many non-finite steps, or if no update was applied in the whole run;
    // Exit::BadInput, after saving, if data cannot be read).
    Exit run(StopFlag& stop);

    // Records the copies that have ended since (rank 0): after run(), when the last of them have been waited
    // for.
    void take_copies();

    // One step, taken by all ranks; what run() does between its decisions.
    StepResult step();
    [[nodiscard]] const Progress& progress() const { return progress_; }

  private:
    struct Decisions {
        bool stop = false;
        bool save = false;
    };
    Decisions agree(StopFlag& stop, const std::optional<Error>& problem);
    [[nodiscard]] double interval_s() const;
    [[nodiscard]] double max_age_s() const;
    void choose_interval(double stall_s);
    [[nodiscard]] bool copy_overdue() const;
    [[noreturn]] void end_without_copy();
    [[noreturn]] void end_without_data(const std::optional<Error>& problem);
    std::string how_to_go_on();
    struct UnderWay {
        std::int64_t step = 0;
        double began_s = 0.0;  // monotonic
        double stall_s = 0.0;  // how long training stood still for it
    };
    Exit train(StopFlag& stop);
    bool interval_passed();
    [[nodiscard]] bool due_by_steps() const;
    // `used`: the loss scale of the closed step.
    void close(const StepResult& result, const std::optional<LossScale>& used);
    void report_loss_scale(const StepResult& result, const std::optional<LossScale>& used);
    void judge_nonfinite(const StepResult& result);
    void judge_updates() const;
    bool evaluate_if_due(StopFlag& stop);
    void save_behind();
    void leave_out();
    void save_now();
    void begin_save();
    void put_off();
    std::optional<Error> end_save(double patience_s);
    void settle();
    void end_in_order();
    bool may_fail(const Error& error, std::int64_t step);
    [[noreturn]] void fail_save(const Error& error, std::int64_t step);
    Exit stop_with_checkpoint();

    TrainerParts parts_;
    JobSpec job_;
    Progress progress_;
    std::int64_t saved_step_;
    std::optional<UnderWay> under_way_;
    bool save_wanted_ = false;        // by somebody, while another save is under way
    std::int64_t skipped_saves_ = 0;  // because the one before was still being written
    bool owed_ = false;               // a save that was due failed, or had to be put off
    double retry_at_s_ = 0.0;         // monotonic: it is not tried again before
    double begun_at_s_;               // monotonic, of the newest save that was begun (or the start)
    double saved_at_s_;               // monotonic, of the state that was saved last (or the start)
    // Rank 0, where a copy is what counts as saved: its place, and of the newest state there.
    std::string durable_place_;
    double durable_at_s_;
    std::map<std::int64_t, double> begun_saves_;  // by step, monotonic: not known to be there yet
    std::string copy_error_;                      // of the newest copy that failed
    double checkpoint_s_ = 0.0;  // what saves and evaluations took of the time since the last closed step
    double evaluation_s_ = 0.0;
    SaveCost save_cost_;      // rank 0
    double auto_interval_s_;  // rank 0: what checkpoint.interval = "auto" means at present
    GpuExtremes gpus_;        // of all ranks, from the newest agreement
};

}  // namespace trainctl
