#include "trainctl/train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include "trainctl/base/text.h"
#include "trainctl/checkpoint/agree.h"
#include "trainctl/config/tiers.h"

namespace trainctl {
namespace {

constexpr double first_auto_interval_s = 5.0 * 60.0;  // until a save has shown what it costs
constexpr double retry_s = 60.0;

// Members of an agreement that is made by maxima.
constexpr std::int64_t unknown = std::numeric_limits<std::int64_t>::min();

template <class T>
std::int64_t or_unknown(const std::optional<T>& value) {
    return value ? static_cast<std::int64_t>(*value) : unknown;
}

std::optional<std::int64_t> if_known(std::int64_t value) {
    return value == unknown ? std::nullopt : std::optional(value);
}

std::optional<std::int64_t> negative(std::optional<std::int64_t> value) {
    return value ? std::optional(-*value) : std::nullopt;
}

// What this rank alone met; the others hear of it in an agreement.
std::optional<Error> problem_of(const std::function<void()>& work) {
    try {
        work();
    } catch (const Error& error) {
        return error;
    }
    return std::nullopt;
}

}  // namespace

Trainer::Trainer(const TrainerParts& parts, const JobSpec& job, const Progress& start)
    : parts_(parts),
      job_(job),
      progress_(start),
      saved_step_(start.step),
      begun_at_s_(parts.clock.monotonic_s()),
      saved_at_s_(begun_at_s_),
      durable_at_s_(begun_at_s_),
      auto_interval_s_(first_auto_interval_s) {
    const std::vector<Tier> tiers = checkpoint_tiers(job.checkpoint);
    const std::size_t durable = durable_tier(job.checkpoint, tiers);
    if (durable > 0 && parts.checkpoints != nullptr && parts.control.rank() == 0)
        durable_place_ = tiers[durable].text;
    progress_.loss_scale = LossScaler(job.precision).start(start.loss_scale);
}

bool Trainer::interval_passed() {
    // Rank 0's clock decides; the others hear of it in agree().
    if (parts_.checkpoints == nullptr || parts_.control.rank() != 0 || under_way_ ||
        progress_.step == saved_step_)
        return false;
    const double now = parts_.clock.monotonic_s();
    return now >= retry_at_s_ && (owed_ || now - begun_at_s_ >= interval_s());
}

bool Trainer::due_by_steps() const {
    const std::int64_t interval = job_.checkpoint.interval_steps;
    return parts_.checkpoints != nullptr && interval > 0 && progress_.step % interval == 0 &&
           progress_.step != saved_step_;
}

Trainer::Decisions Trainer::agree(StopFlag& stop, const std::optional<Error>& problem) {
    // What is told of GPUs travels with the decisions: it must not cost a message of its own.
    const GpuRecord gpu = parts_.gpu ? parts_.gpu() : GpuRecord{};
    const bool wanted = save_wanted_ || interval_passed();
    const bool busy = parts_.checkpoints != nullptr && parts_.checkpoints->busy();
    take_copies();
    std::array<std::int64_t, 8> flags{stop.stop_requested() ? 1 : 0,
                                      stop.take_save_request() || wanted ? 1 : 0,
                                      problem ? 1 : 0,
                                      busy ? 1 : 0,
                                      or_unknown(gpu.temperature_c),
                                      or_unknown(negative(gpu.sm_clock_mhz)),
                                      or_unknown(gpu.slowed),
                                      copy_overdue() ? 1 : 0};
    parts_.control.all_reduce(flags, Reduce::Max);
    if (under_way_ && flags[3] == 0) settle();
    if (flags[2] != 0) end_without_data(problem);
    if (flags[7] != 0) end_without_copy();
    gpus_ = {if_known(flags[4]), negative(if_known(flags[5])), {}};
    if (flags[6] != unknown) gpus_.any_slowed = flags[6] != 0;
    const bool stops = flags[0] != 0;
    const bool asked = flags[1] != 0;
    const bool due = due_by_steps();
    if (due && under_way_ && !stops) leave_out();
    // What somebody asked for is not left out because another save is being written: it comes next.
    save_wanted_ = asked && under_way_;
    return {stops, (asked || due) && !under_way_};
}

std::string Trainer::how_to_go_on() {
    if (parts_.checkpoints == nullptr) return {};
    const bool speaks = parts_.control.rank() == 0;
    return parts_.control.broadcast(speaks ? parts_.checkpoints->newest() : std::string());
}

void Trainer::end_without_data(const std::optional<Error>& problem) {
    std::string kept;
    try {
        save_now();
        kept = fmt::format("The last finished step is {}. {}", progress_.step, how_to_go_on());
    } catch (const Error& error) {
        if (error.code() != Exit::Resource) throw;
        kept =
            fmt::format("The last finished step, {}, could not be saved: {}", progress_.step, error.what());
    }
    try {
        trainctl::agree(parts_.control, [&] {
            if (problem) throw Error(*problem);
        });
    } catch (const Error& error) {
        if (error.code() == Exit::Peer) throw;
        throw Error(error.code(),
                    fmt::format("{}. Training cannot go on without these data: bring back the file as it was "
                                "when the run began. {}",
                                error.what(), kept),
                    error.where(), Scope::Shared);
    }
    fail(Exit::Internal, "a rank could not read its data and does not say why");
}

Exit Trainer::run(StopFlag& stop) {
    try {
        return train(stop);
    } catch (const Error& error) {
        // A peer that is gone, or an owner that took over: nothing of ours will be committed any more.
        if (error.code() != Exit::Peer && error.code() != Exit::Fenced) end_in_order();
        throw;
    }
}

Exit Trainer::train(StopFlag& stop) {
    while (progress_.step < job_.steps) {
        const RangeScope range(parts_.ranges, RangeKind::Step, progress_.step + 1);
        if (parts_.check) parts_.check();
        // A rank that is asked to stop gives up waiting for data; the others learn of it in agree(), before
        // the step.
        const std::optional<Error> problem = problem_of([&] {
            parts_.runner.fetch(parts_.train_data, progress_, [&stop] { return stop.stop_requested(); });
        });
        const Decisions decisions = agree(stop, problem);
        if (decisions.stop) return stop_with_checkpoint();
        if (decisions.save) save_behind();
        step();
        if (evaluate_if_due(stop)) return stop_with_checkpoint();
    }
    save_now();
    judge_updates();
    return Exit::Ok;
}

Exit Trainer::stop_with_checkpoint() {
    save_now();
    return Exit::Interrupted;
}

StepResult Trainer::step() {
    parts_.runner.fetch(parts_.train_data, progress_, [] { return false; });
    StepResult result = parts_.runner.step(parts_.train_data, progress_);
    const std::optional<LossScale> used = progress_.loss_scale;
    progress_.advance(job_.training.global_batch_size,
                      job_.training.global_batch_size * job_.training.sequence_length, result.outcome,
                      result.next_loss_scale);
    save_cost_.step(result.seconds, under_way_.has_value());
    close(result, used);
    if (parts_.checkpoints != nullptr) parts_.checkpoints->closed(result.outcome);
    report_loss_scale(result, used);
    judge_nonfinite(result);
    return result;
}

void Trainer::close(const StepResult& result, const std::optional<LossScale>& used) {
    StepRecord record;
    record.attempt = parts_.attempt;
    record.step = progress_.step;
    record.total = job_.steps;
    record.loss = result.loss;
    record.grad_norm = result.grad_norm;
    record.clip = result.clip;
    record.lr = result.lr;
    record.applied = result.outcome == StepOutcome::Applied;
    if (used) record.loss_scale = used->scale;
    record.skipped = progress_.skipped;
    record.applied_updates = progress_.applied_updates;
    record.samples = progress_.samples;
    record.tokens = progress_.tokens;
    record.step_s = result.seconds;
    const auto step_tokens =
        static_cast<double>(job_.training.global_batch_size * job_.training.sequence_length);
    record.tokens_per_s = result.seconds > 0.0 ? step_tokens / result.seconds : 0.0;
    record.phases = result.phases;
    record.phases.checkpoint = std::exchange(checkpoint_s_, 0.0);
    record.phases.evaluation = std::exchange(evaluation_s_, 0.0);
    record.unix_s = parts_.clock.unix_s();
    if (parts_.gpu && parts_.control.rank() == 0) record.gpu = parts_.gpu();  // nobody sees the others
    record.gpus = gpus_;
    if (parts_.annotate) parts_.annotate(record);
    parts_.observer.step(record);
}

void Trainer::report_loss_scale(const StepResult& result, const std::optional<LossScale>& used) {
    if (!used || parts_.control.rank() != 0) return;
    const LossScale& next = *result.next_loss_scale;
    const std::string change = fmt::format("loss scale {} -> {}", used->scale, next.scale);
    if (result.outcome == StepOutcome::Overflow) {
        parts_.log.info(fmt::format(
            "step {}: the gradient overflowed fp16, the update was skipped on all ranks; {}", progress_.step,
            next.scale != used->scale ? change
                                      : fmt::format("loss scale stays {} ({} more until it halves)",
                                                    next.scale, next.hysteresis_left)));
    } else if (next.scale != used->scale) {
        parts_.log.info(fmt::format("step {}: {} after {} updates in a row", progress_.step, change,
                                    used->good_steps + 1));
    }
}

void Trainer::judge_nonfinite(const StepResult& result) {
    if (result.outcome != StepOutcome::NonFinite) return;
    const FaultToleranceSpec& policy = job_.fault_tolerance;
    const std::string scaled =
        progress_.loss_scale ? fmt::format(" at loss scale {}", progress_.loss_scale->scale) : "";
    if (parts_.control.rank() == 0) {
        parts_.log.warn(fmt::format(
            "step {}: loss {} / gradient norm {} is not finite{}; the update was skipped on all ranks "
            "({} in a row, {} in the last 1000 steps)",
            progress_.step, result.loss, result.grad_norm, scaled, progress_.consecutive_skips,
            progress_.recent_skips.size()));
    }
    const bool too_many =
        progress_.consecutive_skips > policy.nonfinite_max_consecutive ||
        static_cast<std::int64_t>(progress_.recent_skips.size()) > policy.nonfinite_max_per_1000;
    if (policy.nonfinite != NonFinitePolicy::Stop && !too_many) return;
    const std::string newest = how_to_go_on();
    fail(Exit::Diverged,
         fmt::format("training diverged at step {}{}: {} non-finite steps in a row (allowed {}), {} in the "
                     "last 1000 (allowed "
                     "{}). Their updates were not applied, and nothing was saved since they began. Lower "
                     "optimizer.lr, lengthen schedule.warmup_steps, "
                     "or look at the data with `trainctl data inspect --job JOB --step {}`.{}{}",
                     progress_.step, scaled, progress_.consecutive_skips, policy.nonfinite_max_consecutive,
                     progress_.recent_skips.size(), policy.nonfinite_max_per_1000, progress_.step,
                     newest.empty() ? "" : " ", newest));
}

void Trainer::judge_updates() const {
    if (progress_.step == 0 || progress_.applied_updates > 0) return;
    const std::string cure =
        progress_.loss_scale
            ? fmt::format(
                  "Every gradient overflowed fp16 or was not finite; the loss scale has come down to {}. "
                  "Lower precision.loss_scale.initial, raise job.steps so that it can fall further, or "
                  "use precision.compute = \"bf16\", which needs none.",
                  progress_.loss_scale->scale)
            : std::string(
                  "No gradient was finite. Lower optimizer.lr, or look at the data with `trainctl data "
                  "inspect --job JOB --step 1`.");
    fail(Exit::Diverged, fmt::format("0 of {} steps applied an update: the weights are the initial ones. {}",
                                     progress_.step, cure));
}

bool Trainer::evaluate_if_due(StopFlag& stop) {
    const std::int64_t interval = job_.training.eval_interval;
    if (parts_.validation_data == nullptr || interval <= 0) return false;
    if (progress_.step % interval != 0 && progress_.step != job_.steps) return false;
    const RangeScope range(parts_.ranges, RangeKind::Evaluation);
    const double began = parts_.clock.monotonic_s();
    const auto asked = [&](std::int64_t batch) {
        const std::optional<Error> problem = problem_of(
            [&] { parts_.validation_data->await_step([&stop] { return stop.stop_requested(); }, batch); });
        std::array<std::int64_t, 2> flags{stop.stop_requested() ? 1 : 0, problem ? 1 : 0};
        parts_.control.all_reduce(flags, Reduce::Max);
        if (flags[1] != 0) end_without_data(problem);
        return flags[0] != 0;
    };
    const auto result = parts_.runner.evaluate(*parts_.validation_data, job_.training.eval_batches, asked);
    if (!result) return true;
    EvaluationRecord record;
    record.attempt = parts_.attempt;
    record.step = progress_.step;
    record.loss = result->loss;
    record.tokens = result->tokens;
    record.seconds = parts_.clock.monotonic_s() - began;
    record.unix_s = parts_.clock.unix_s();
    evaluation_s_ += record.seconds;
    parts_.observer.evaluation(record);
    return false;
}

double Trainer::interval_s() const {
    return job_.checkpoint.interval_s > 0.0 ? job_.checkpoint.interval_s : auto_interval_s_;
}

double Trainer::max_age_s() const {
    if (job_.checkpoint.max_age_s > 0.0) return job_.checkpoint.max_age_s;
    return 3.0 * (job_.checkpoint.interval_s > 0.0 ? job_.checkpoint.interval_s : longest_auto_interval_s);
}

// Rank 0, after a save.
void Trainer::choose_interval(double stall_s) {
    save_cost_.saved(stall_s);
    if (job_.checkpoint.interval_s > 0.0 || parts_.control.rank() != 0) return;
    const double before = auto_interval_s_;
    const double cost = *save_cost_.seconds();
    auto_interval_s_ = save_interval_s(cost, parts_.between_failures_s);
    constexpr double worth_saying = 0.2;
    if (std::abs(auto_interval_s_ - before) <= worth_saying * before) return;
    parts_.log.info(
        fmt::format("checkpoint.interval: every {}, since a save costs {} and one failure in {} is expected",
                    format_duration(auto_interval_s_), format_duration(cost),
                    format_duration(parts_.between_failures_s)));
}

void Trainer::take_copies() {
    if (parts_.checkpoints == nullptr) return;
    for (CopyRecord& record : parts_.checkpoints->copied()) {
        record.attempt = parts_.attempt;
        record.unix_s = parts_.clock.unix_s();
        parts_.observer.copy(record);
        if (record.tier != durable_place_) continue;
        copy_error_ = record.error;
        const auto begun = begun_saves_.find(record.step);
        if (!record.error.empty() || begun == begun_saves_.end()) continue;
        durable_at_s_ = begun->second;
        begun_saves_.erase(begun_saves_.begin(), std::next(begun));
    }
}

// Rank 0: what counts as saved is too old for training to go on.
bool Trainer::copy_overdue() const {
    return !durable_place_.empty() && parts_.clock.monotonic_s() - durable_at_s_ > max_age_s();
}

void Trainer::end_without_copy() {
    save_now();
    const bool speaks = parts_.control.rank() == 0;
    const std::string text = parts_.control.broadcast(
        !speaks
            ? std::string()
            : fmt::format("no checkpoint newer than {} has come to {}, which counts as saved "
                          "(checkpoint.durable_tier, checkpoint.max_age){}{}. Step {} is saved in the first "
                          "tier. {}",
                          format_duration(parts_.clock.monotonic_s() - durable_at_s_), durable_place_,
                          copy_error_.empty() ? "" : "; the last copy failed: ", copy_error_, progress_.step,
                          parts_.checkpoints->newest()));
    throw Error(Exit::Resource, text, Where::here(), Scope::Shared);
}

// Whether training goes on without this save. A full disk is an alarm, not the end, as long as the last
// durable checkpoint is young enough. What happens here is the same on all ranks: the store reports one
// agreed outcome, and only rank 0's age is broadcast.
bool Trainer::may_fail(const Error& error, std::int64_t step) {
    const double max_age = max_age_s();
    std::array<std::int64_t, 1> too_old{
        parts_.control.rank() == 0 && parts_.clock.monotonic_s() - saved_at_s_ > max_age ? 1 : 0};
    parts_.control.all_reduce(too_old, Reduce::Max);
    if (too_old[0] != 0) return false;
    put_off();
    if (parts_.control.rank() == 0) {
        parts_.log.error(
            fmt::format("checkpoint at step {} failed, training goes on until the newest one is {} old: {}",
                        step, format_duration(max_age), error.what()));
    }
    return true;
}

// What was due stays due: it is tried again soon, not at the next interval, and not at once either.
void Trainer::put_off() {
    owed_ = true;
    retry_at_s_ = parts_.clock.monotonic_s() + std::min(retry_s, interval_s());
}

void Trainer::fail_save(const Error& error, std::int64_t step) {
    const bool speaks = parts_.control.rank() == 0;
    const std::string room =
        parts_.control.broadcast(speaks ? parts_.checkpoints->lack_of_room() : std::string());
    throw Error(error.code(),
                fmt::format("step {} was not saved: {}. {}{}{}", step, error.what(), room,
                            room.empty() ? "" : ". ", how_to_go_on()),
                error.where(), Scope::Shared);
}

void Trainer::begin_save() {
    const RangeScope range(parts_.ranges, RangeKind::Checkpoint);
    const double began = parts_.clock.monotonic_s();
    parts_.checkpoints->begin(progress_);
    under_way_ = UnderWay{progress_.step, began, parts_.clock.monotonic_s() - began};
    begun_at_s_ = began;
    owed_ = false;
    checkpoint_s_ += under_way_->stall_s;
}

// Waits for the save under way, which most often has ended already, and records what came of it. nullopt: it
// is saved; else why not (Exit::Resource).
std::optional<Error> Trainer::end_save(double patience_s) {
    const RangeScope range(parts_.ranges, RangeKind::Checkpoint);
    const double began = parts_.clock.monotonic_s();
    const UnderWay save = *std::exchange(under_way_, std::nullopt);
    CheckpointRecord record;
    std::optional<Error> failure;
    try {
        if (const auto report = parts_.checkpoints->finish(patience_s)) {
            saved_step_ = save.step;
            saved_at_s_ = save.began_s;
            if (!durable_place_.empty()) begun_saves_[save.step] = save.began_s;
            record.directory = report->directory;
            record.bytes = report->bytes;
            record.state_hash = report->state_hash;
            record.seconds = report->seconds;
        } else {
            failure = Error(Exit::Resource, "it was still being written when training ended", Where::here());
        }
    } catch (const Error& error) {
        // What only this rank met, its device perhaps, is no failed save: the others know nothing of it.
        if (error.code() != Exit::Resource || error.scope() != Scope::Shared) throw;
        failure = error;
    }
    const double now = parts_.clock.monotonic_s();
    if (failure) record.error = failure->what();
    record.attempt = parts_.attempt;
    record.step = save.step;
    record.stall_s = save.stall_s + now - began;
    record.age_s = now - save.began_s;
    record.skipped = skipped_saves_;
    record.unix_s = parts_.clock.unix_s();
    parts_.observer.checkpoint(record);
    if (!failure) choose_interval(record.stall_s);
    checkpoint_s_ += now - began;
    return failure;
}

// Collective; the same on all ranks.
void Trainer::settle() {
    const std::int64_t step = under_way_->step;
    const std::optional<Error> failure = end_save(INFINITY);
    if (failure && !may_fail(*failure, step)) fail_save(*failure, step);
}

// At the interval or on request: training goes on beside it, and may go on without it.
void Trainer::save_behind() {
    if (parts_.checkpoints == nullptr) return;
    const bool speaks = parts_.control.rank() == 0;
    if (progress_.consecutive_skips > 0) {
        if (speaks) {
            parts_.log.warn(fmt::format("step {} is not saved: {} in a row were not finite", progress_.step,
                                        counted(progress_.consecutive_skips, "step")));
        }
        put_off();
        return;
    }
    begin_save();
    if (!job_.checkpoint.async) settle();
}

// The save that is due now, because the one before is still being written.
void Trainer::leave_out() {
    ++skipped_saves_;
    if (parts_.control.rank() != 0) return;
    parts_.log.warn(
        fmt::format("step {} is not saved: the checkpoint of step {} is still being written after {} ({} "
                    "left out so far); save less often, or on faster storage",
                    progress_.step, under_way_->step,
                    format_duration(parts_.clock.monotonic_s() - under_way_->began_s), skipped_saves_));
}

// The last save of this attempt. Nothing comes after it: what hindered it may have passed by the second try
// (somebody cleaning up there).
void Trainer::save_now() {
    if (parts_.checkpoints == nullptr) return;
    const auto speak = [&](const std::string& text) {
        if (parts_.control.rank() == 0) parts_.log.error(text);
    };
    if (under_way_) {
        const std::int64_t step = under_way_->step;
        if (const auto failure = end_save(INFINITY))
            speak(fmt::format("checkpoint at step {} failed: {}", step, failure->what()));
    }
    for (int tries = 2; tries > 0 && saved_step_ != progress_.step; --tries) {
        begin_save();
        const std::optional<Error> failure = end_save(INFINITY);
        if (failure && tries == 1) fail_save(*failure, progress_.step);
    }
}

// Training ends by an error, but what is being written is good, and may soon be complete.
void Trainer::end_in_order() {
    if (!under_way_) return;
    constexpr double patience_s = 60.0;
    const std::int64_t step = under_way_->step;
    const auto warn = [&](const Error& error) {
        parts_.log.warn(fmt::format("the checkpoint of step {} failed as well: {}", step, error.what()));
    };
    try {
        if (const auto failure = end_save(patience_s)) warn(*failure);
    } catch (const Error& error) {
        warn(error);
    }
}

}  // namespace trainctl
