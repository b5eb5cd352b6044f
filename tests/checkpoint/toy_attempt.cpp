#include "checkpoint/toy_attempt.h"

#include <algorithm>
#include <memory>
#include <mutex>

#include "support/rank_links.h"
#include "trainctl/base/error.h"
#include "trainctl/checkpoint/tier_copy.h"
#include "trainctl/rundir/attempt.h"
#include "trainctl/rundir/lease.h"

namespace trainctl::test {
namespace {

constexpr int ranks = 2;

// Everybody else is dead.
class LastSurvivor final : public ProcessTable {
  public:
    explicit LastSurvivor(std::int64_t pid) : me_{"host", "boot", "ns", pid, 1} {}
    ProcessIdentity self() override { return me_; }
    Liveness look(const ProcessIdentity& process) override {
        return process == me_ ? Liveness::Alive : Liveness::Dead;
    }

  private:
    ProcessIdentity me_;
};

const RunLayout& toy_layout() {
    static const RunLayout layout(toy_attempt_dir);
    return layout;
}

// The operations after a crash fail like any other that throws; what ends the attempt is the crash.
template <class T>
T value_or_crash(MemoryFileSystem& files, Result<T> result) {
    if (files.crashed()) throw Crash("stopped");
    if (!result.ok()) throw Error(result.error());
    return std::move(result).value();
}

}  // namespace

void run_attempt(MemoryFileSystem& files, const AttemptPlan& plan, Progress& progress) {
    const RunLayout& layout = toy_layout();
    ManualClock clock;
    LastSurvivor processes(highest_attempt(files, layout) + 1);
    const std::unique_ptr<Lease> lease = Lease::acquire({files, clock, processes}, layout);
    progress.attempt = lease->attempt();
    std::mutex mutex;
    run_linked_ranks(ranks, RankOrder::Serial, [&](RankLink& link) {
        std::unique_ptr<JournalWriter> journal;
        Journal history;
        if (link.rank() == 0) {
            history = read_journal(files, layout);
            journal = std::make_unique<JournalWriter>(files, clock, layout, lease->attempt());
        }
        StoreSettings settings = toy_settings(layout.checkpoints(), lease->attempt());
        settings.retention.keep_latest = plan.keep;
        settings.fence = [&] { lease->renew(); };
        CheckpointStore store(files, clock, settings, journal.get(), history);
        CopySettings how;
        how.from = {"first", layout.checkpoints(), Reach::Everybody};
        how.run_id = settings.run_id;
        how.fence = settings.fence;
        how.unwanted = [&] { return store.unwanted_copies(); };
        TierCopier copier(files, clock, how);
        SliceSet mine = std::move(flat_layout(small_tensors(), ranks)[static_cast<std::size_t>(link.rank())]);
        for (const std::int64_t step : plan.steps) {
            mine.fill(static_cast<std::uint64_t>(step));
            const SaveReport saved = value_or_crash(files, store.save(toy_snapshot(step, mine), link));
            {
                const std::lock_guard lock(mutex);
                progress.returned = step;
                progress.reported[saved.directory] = saved.state_hash;
            }
            if (plan.copying == Copying::None) continue;
            value_or_crash(files,
                           copier.copy(saved.directory, {"second", toy_copy_root, Reach::Everybody}, link));
            const std::lock_guard lock(mutex);
            progress.copied = step;
        }
    });
    lease->release();
}

std::string resume_toy_attempt(MemoryFileSystem& disk, LoadReport& report) {
    ManualClock clock;
    SoloLink solo;
    SliceSet all = std::move(flat_layout(small_tensors(), 1)[0]);
    all.clear();
    StoreSettings settings = toy_settings(toy_layout().checkpoints(), 99);
    settings.copies = {{"second", toy_copy_root, Reach::Everybody}};
    CheckpointStore store(disk, clock, settings, nullptr, read_journal(disk, toy_layout()));
    try {
        report = store.resume({ResumeMode::Auto, -1}, RunState::Existing,
                              {all.slices(), {"consumed_samples"}}, solo);
    } catch (const Error& error) {
        return error.what();
    }
    if (report.outcome == LoadOutcome::StartFresh) return "fresh";
    if (!all.holds(static_cast<std::uint64_t>(report.manifest.step))) return "wrong contents";
    return "step " + std::to_string(report.manifest.step);
}

}  // namespace trainctl::test
