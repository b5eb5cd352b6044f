#include "trainctl/train/run_checkpoints.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "trainctl/base/text.h"
#include "trainctl/checkpoint/space.h"
#include "trainctl/config/model_math.h"
#include "trainctl/train/host_slices.h"

namespace trainctl {
namespace {

// Finite steps after which a checkpoint counts as good.
constexpr std::int64_t probation_steps = 200;
// How long a rank that fails waits for what is being written.
constexpr std::chrono::seconds patience_of_the_failed{60};

// Whether every F32 of the slices is finite.
bool all_finite(const std::vector<NamedSlice>& slices) {
    constexpr std::uint32_t exponent = 0x7F800000U;
    for (const NamedSlice& slice : slices) {
        if (slice.view.dtype != DType::F32) continue;
        const auto* bits = slice.view.as<std::uint32_t>();
        std::uint32_t bad = 0;
        for (std::int64_t i = 0; i < slice.view.elements(); ++i)
            bad |= (bits[i] & exponent) == exponent ? 1U : 0U;
        if (bad != 0) return false;
    }
    return true;
}

// For the end of a message; the storage may be what has failed.
std::string newest_of(const CheckpointStore& store) {
    try {
        const auto found = store.newest_complete();
        if (!found) return fmt::format("There is no complete checkpoint in {}", store.root());
        return fmt::format(
            "The newest complete checkpoint is that of step {} ({}): --resume auto goes on from there",
            found->name.step, found->path);
    } catch (const Error& error) {
        return fmt::format("Which checkpoint is the newest cannot be seen: {}", error.what());
    }
}

}  // namespace

std::map<std::string, std::int64_t> layout_counters(const JobSpec& job, const Mesh& mesh) {
    return {{"data", mesh.shape.data},
            {"tensor", mesh.shape.tensor},
            {"pipeline", mesh.shape.pipeline},
            {"virtual_stages", job.parallel.virtual_stages},
            {"world", mesh.shape.data * mesh.shape.tensor * mesh.shape.pipeline},
            {"zero_stage", job.memory.zero_stage},
            {"micro_batch_size", job.training.micro_batch_size}};
}

RunCheckpoints::RunCheckpoints(CheckpointStore& store, Rank& rank, Training& training,
                               CheckpointContext context, Log& log, TierCopies* copies)
    : store_(store),
      rank_(rank),
      training_(training),
      context_(std::move(context)),
      log_(log),
      copies_(copies),
      channel_(rank.world.make_background_channel()),
      state_(rank.device, rank.backend->ops(), training.state().state_slices(),
             training.job().checkpoint.async ? SnapshotMode::Copy : SnapshotMode::InPlace) {
    training_.runner().update_after(&state_.copied());
}

RunCheckpoints::~RunCheckpoints() {
    training_.runner().update_after(nullptr);
    if (!writing()) return;
    channel_->give_up();
    writing_.wait();
}

bool RunCheckpoints::give_up(std::chrono::duration<double> patience) {
    const bool copied = copies_ == nullptr || copies_->give_up(patience);
    if (!writing()) return copied;
    channel_->give_up();
    return writing_.wait_for(patience) == std::future_status::ready && copied;
}

std::vector<CopyRecord> RunCheckpoints::copied() {
    if (copies_ == nullptr) return {};
    std::vector<CopyRecord> records = copies_->take();
    for (const CopyRecord& record : records) {
        if (!record.error.empty()) {
            log_.error(fmt::format("checkpoint step {} was not copied to {}, training goes on: {}",
                                   record.step, record.tier, record.error));
        } else if (record.bytes > 0) {
            log_.info(fmt::format("checkpoint step {} copied to {}: {} in {}", record.step, record.tier,
                                  format_bytes(record.bytes), format_duration(record.seconds)));
        }
        for (const std::string& removed : record.removed)
            log_.info(fmt::format("checkpoint {} removed from {}", removed, record.tier));
        for (const std::string& warning : record.warnings) log_.warn(warning);
    }
    return records;
}

void RunCheckpoints::begin(const Progress& progress) {
    invariant(!begun_ && !writing(), "a save begins while another one is under way");
    state_.take(*rank_.compute, *rank_.communication);
    Snapshot snapshot;
    snapshot.step = progress.step;
    snapshot.slices = state_.host();
    snapshot.counters = to_counters(progress);
    snapshot.scalars = to_scalars(progress);
    snapshot.layout = context_.layout;
    snapshot.spec = context_.spec;
    snapshot.data_fingerprint = context_.data_fingerprint;
    begun_ = std::move(snapshot);
    saving_ = progress.step;
    finite_steps_ = 0;
    hand_over();
}

// To a thread, as soon as the snapshot is in host memory: the thread itself knows no device.
void RunCheckpoints::hand_over() {
    if (!begun_ || !state_.complete()) return;
    writing_ = std::async(std::launch::async, [this, snapshot = *std::exchange(begun_, std::nullopt)] {
        return write(snapshot);
    });
}

SaveReport RunCheckpoints::write(const Snapshot& snapshot) {
    require_finite(snapshot);
    return store_.save(snapshot, *channel_).value();
}

bool RunCheckpoints::busy() {
    hand_over();
    return begun_ || (writing() && writing_.wait_for(std::chrono::seconds(0)) != std::future_status::ready);
}

std::optional<SaveReport> RunCheckpoints::finish(double patience_s) {
    invariant(begun_ || writing(), "the end of a save that was not begun");
    if (begun_) {
        state_.wait();
        hand_over();
    }
    // Longer than any save, and still a time that the clock can express.
    constexpr double longest_s = 1e9;
    const std::chrono::duration<double> patience(std::min(patience_s, longest_s));
    if (writing_.wait_for(patience) != std::future_status::ready) return std::nullopt;
    SaveReport report = writing_.get();
    if (rank_.world.rank() == 0) {
        on_probation_.push_back({report.directory, finite_steps_});
        if (copies_ != nullptr) copies_->offer(report.directory, saving_);
        log_.info(fmt::format("checkpoint step {}: {} in {} ({}/s), state {:016x}, {}", saving_,
                              format_bytes(report.bytes), format_duration(report.seconds),
                              format_bytes(static_cast<std::uint64_t>(static_cast<double>(report.bytes) /
                                                                      std::max(report.seconds, 1e-9))),
                              report.state_hash, report.directory));
        for (const std::string& removed : report.removed)
            log_.info(fmt::format("checkpoint {} removed by retention", removed));
        for (const std::string& warning : report.warnings) log_.warn(warning);
    }
    return report;
}

// An update of finite gradients may still have been too large. Such weights are no state to go on from.
void RunCheckpoints::require_finite(const Snapshot& snapshot) {
    std::int64_t finite = all_finite(snapshot.slices) ? 1 : 0;
    channel_->all_reduce({&finite, 1}, Reduce::Min);
    if (finite != 0) return;
    const bool speaks = rank_.world.rank() == 0;
    const std::string kept = channel_->broadcast(speaks ? newest_of(store_) : std::string());
    throw Error(
        Exit::Diverged,
        fmt::format("training diverged: the weights or moments of step {} are not finite, so they are not "
                    "saved. Lower optimizer.lr or optimizer.weight_decay, lengthen schedule.warmup_steps, or "
                    "raise optimizer.epsilon. {}",
                    snapshot.step, kept),
        Where::here(), Scope::Shared);
}

void RunCheckpoints::closed(StepOutcome outcome) {
    hand_over();
    const auto count = [&](std::int64_t& finite_steps) {
        finite_steps = outcome == StepOutcome::NonFinite ? 0 : finite_steps + 1;
    };
    count(finite_steps_);
    for (Probation& checkpoint : on_probation_) count(checkpoint.finite_steps);
    if (!writing()) mark_good();
}

void RunCheckpoints::mark_good() {
    while (!on_probation_.empty() && on_probation_.front().finite_steps >= probation_steps) {
        const std::string directory = on_probation_.front().directory;
        on_probation_.erase(on_probation_.begin());
        try {
            store_.mark_healthy(directory);
        } catch (const Error& error) {
            log_.warn(fmt::format("checkpoint {} could not be marked as good: {}", directory, error.what()));
        }
    }
}

std::string RunCheckpoints::newest() {
    if (writing() && writing_.wait_for(patience_of_the_failed) != std::future_status::ready)
        return "A checkpoint is still being written";
    return newest_of(store_);
}

std::string RunCheckpoints::lack_of_room() {
    try {
        const std::uint64_t need =
            predicted_bytes(parameter_count(training_.job().model), rank_.world.size());
        const std::uint64_t free = store_.free_bytes();
        if (free >= need) return {};
        return fmt::format("A checkpoint takes {} bytes, {} are free in {}: free {} bytes more", need, free,
                           store_.root(), need - free);
    } catch (const Error& error) {
        return error.what();
    }
}

// The attempt before may have ended before its last copies were made.
void RunCheckpoints::offer_again(const Manifest& manifest) {
    if (copies_ == nullptr || rank_.world.rank() != 0) return;
    const auto newest = store_.newest_complete();
    if (newest && newest->manifest.directory == manifest.directory)
        copies_->offer(manifest.directory, manifest.step, TierCopies::Origin::AnEarlierOne);
}

RunCheckpoints::Resumed RunCheckpoints::resume(const ResumeRequest& request, RunState state,
                                               const std::function<void(const Manifest&)>& accept) {
    LoadRequest wanted;
    wanted.accept = accept;
    wanted.wanted = training_.state().load_slices();
    wanted.through = load_into(rank_.device, *rank_.compute, wanted.wanted, state_.staging());
    Progress required;
    required.loss_scale = LossScaler(training_.job().precision).start({});
    for (const auto& [name, value] : to_counters(required)) wanted.required_counters.push_back(name);
    Resumed resumed{store_.resume(request, state, wanted, rank_.world.control()), {}};
    if (rank_.world.rank() == 0) {
        for (const std::string& reason : resumed.report.passed_over) log_.warn(reason);
        log_.info(resumed.report.text);
    }
    if (resumed.report.outcome == LoadOutcome::StartFresh) return resumed;
    training_.state().loaded();
    if (rank_.world.rank() == 0 && resumed.report.manifest.health != Health::Good)
        on_probation_.push_back({resumed.report.manifest.directory, 0});
    offer_again(resumed.report.manifest);
    const Manifest& manifest = resumed.report.manifest;
    resumed.progress = progress_from_checkpoint(manifest.counters, manifest.scalars);
    if (rank_.world.rank() == 0 && resumed.report.state_hash) {
        log_.info(
            fmt::format("loaded step {}, state {:016x}", resumed.progress.step, *resumed.report.state_hash));
    }
    return resumed;
}

LoadReport RunCheckpoints::start_from(CheckpointStore& source, const std::string& directory) {
    ZeroState& state = training_.state();
    state.initialise(training_.job().seed);  // the moments, and padding, which no checkpoint holds
    LoadRequest wanted;
    wanted.wanted = weights_of(state.load_slices());
    wanted.through = load_into(rank_.device, *rank_.compute, wanted.wanted, state_.staging());
    LoadReport report = source.load_directory(directory, wanted, rank_.world.control());
    state.loaded();
    return report;
}

}  // namespace trainctl
