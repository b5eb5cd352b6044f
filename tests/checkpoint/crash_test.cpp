// The machine stops at any operation of a run that saves three times with retention; whatever is found on
// disk afterwards, the newest complete checkpoint loads bit-exact and the next attempt goes on (invariants I1
// to I6 of the save protocol).
#include "checkpoint/toy_state.h"
#include "support/catch.h"
#include "support/memory_file_system.h"
#include "support/rank_links.h"
#include "trainctl/base/error.h"
#include "trainctl/checkpoint/commands.h"
#include "trainctl/rundir/attempt.h"

using namespace trainctl;
using namespace trainctl::test;

namespace {

constexpr int ranks = 2;
const RunLayout layout("run");

struct Progress {
    std::int64_t returned = 0;             // newest step whose save returned
    std::vector<std::uint64_t> committed;  // mutation count when each save returned
};

// One attempt: claims its number, opens its journal and saves the given steps. Version of the state = step.
void run_attempt(MemoryFileSystem& files, const std::vector<std::int64_t>& steps, std::int64_t keep,
                 Progress& progress) {
    ManualClock clock;
    files.make_directories("run");
    files.sync_directory("");
    const int attempt = highest_attempt(files, layout) + 1;
    const ProcessIdentity owner{"host", "boot", "ns", 1, 1};
    if (!claim_attempt(files, layout, attempt, owner)) fail(Exit::Internal, "the attempt was claimed twice");
    run_linked_ranks(ranks, RankOrder::Serial, [&](RankLink& link) {
        std::unique_ptr<JournalWriter> journal;
        Journal history;
        if (link.rank() == 0) {
            history = read_journal(files, layout);
            journal = std::make_unique<JournalWriter>(files, clock, layout, attempt);
        }
        StoreSettings settings = toy_settings(layout.checkpoints(), attempt);
        settings.retention.keep_latest = keep;
        settings.fence = [&] { require_newest_attempt(files, layout, attempt); };
        CheckpointStore store(files, clock, settings, journal.get(), history);
        SliceSet mine = std::move(flat_layout(small_tensors(), ranks)[static_cast<std::size_t>(link.rank())]);
        for (const std::int64_t step : steps) {
            mine.fill(static_cast<std::uint64_t>(step));
            const auto result = store.save(toy_snapshot(step, mine), link);
            if (files.crashed()) throw Crash("stopped");
            if (!result.ok()) throw Error(result.error());
            if (link.rank() == 0) progress.returned = step;
        }
    });
}

std::string whole_state_step(MemoryFileSystem& disk, LoadReport& report) {
    ManualClock clock;
    SoloLink solo;
    SliceSet all = std::move(flat_layout(small_tensors(), 1)[0]);
    all.clear();
    CheckpointStore store(disk, clock, toy_settings(layout.checkpoints(), 99), nullptr,
                          read_journal(disk, layout));
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

// Everything that must hold on a disk found after a crash; `returned` is the newest step whose save had
// returned.
void check_invariants(MemoryFileSystem& disk, std::int64_t returned) {
    LoadReport report;
    const std::string found = whole_state_step(disk, report);
    CAPTURE(found, returned);
    if (returned ==
        0) {  // nothing was promised: fresh, or a checkpoint that was complete just before the stop
        REQUIRE((found == "fresh" || found == "step 10"));
    } else {  // I3, I6
        REQUIRE(found.rfind("step ", 0) == 0);
        REQUIRE(report.manifest.step >= returned);
    }
    // I1, I2: whatever looks complete is complete, to the last byte; a crash damages nothing.
    const CheckpointScan scan = scan_checkpoints(disk, layout.checkpoints(), "run-1");
    for (const CompleteCheckpoint& checkpoint : scan.complete) {
        const CommandResult verified = checkpoint_verify(disk, checkpoint.path, OutputFormat::Text);
        INFO(verified.out);
        REQUIRE(verified.exit == Exit::Ok);
    }
    for (const RejectedCheckpoint& rejected : scan.rejected) {
        INFO(rejected.text);
        REQUIRE(rejected.reason == RejectReason::Uncommitted);
    }
}

// The next attempt passes the same steps again, cleans up what was left, and its own saves load (I4).
void check_next_attempt(MemoryFileSystem& disk) {
    Progress progress;
    run_attempt(disk, {20, 30, 40}, 2, progress);
    REQUIRE(progress.returned == 40);
    LoadReport report;
    REQUIRE(whole_state_step(disk, report) == "step 40");
    const CheckpointScan scan = scan_checkpoints(disk, layout.checkpoints(), "run-1");
    REQUIRE(scan.complete.size() == 2);
    REQUIRE(scan.rejected.empty());
    REQUIRE(scan.complete[0].name.attempt == scan.complete[1].name.attempt);
}

std::uint64_t count_mutations(std::int64_t keep) {
    MemoryFileSystem files;
    Progress progress;
    run_attempt(files, {10, 20, 30}, keep, progress);
    REQUIRE(progress.returned == 30);
    const CheckpointScan scan = scan_checkpoints(files, layout.checkpoints(), "run-1");
    REQUIRE(scan.complete.size() == static_cast<std::size_t>(keep));
    return files.mutations();
}

}  // namespace

TEST_CASE("a crash at any operation, in any state it may leave, loses nothing that was saved") {
    std::uint64_t states = 0;
    for (const std::int64_t keep :
         {2, 1}) {  // 1 is refused by the job file; the store must survive it all the same
        const std::uint64_t mutations = count_mutations(keep);
        for (std::uint64_t k = 0; k < mutations; ++k) {
            MemoryFileSystem files;
            files.crash_at(k);
            Progress progress;
            try {
                run_attempt(files, {10, 20, 30}, keep, progress);
                FAIL("the crash did not happen");
            } catch (const Crash&) {
            }
            int continued = 0;
            for_each_crash_state(files, 20, [&](MemoryFileSystem& disk, const std::string& what) {
                INFO("keep " << keep << ", stopped at operation " << k << ", " << what);
                check_invariants(disk, progress.returned);
                ++states;
                if (k % 3 == 0 && continued++ < 2) check_next_attempt(disk);
            });
        }
    }
    CHECK(states > 2000);
}

TEST_CASE("a second crash while the next attempt saves is no worse") {
    MemoryFileSystem clean;
    Progress progress;
    run_attempt(clean, {10, 20}, 2, progress);
    const std::uint64_t first = clean.mutations() - 9;  // within the second save's commit
    for (std::uint64_t k = first; k < clean.mutations(); k += 2) {
        MemoryFileSystem files;
        files.crash_at(k);
        Progress before;
        try {
            run_attempt(files, {10, 20}, 2, before);
        } catch (const Crash&) {
        }
        for (std::uint64_t seed = 0; seed < 2; ++seed) {
            for (std::uint64_t again = 1; again < 90; again += 7) {
                const auto disk = files.random_crash_state(seed);
                disk->crash_at(again);
                Progress after{before.returned, {}};
                try {
                    run_attempt(*disk, {20, 30}, 2, after);
                } catch (const Crash&) {
                }
                for_each_crash_state(*disk, 4, [&](MemoryFileSystem& found, const std::string& what) {
                    INFO("stopped at " << k << ", then at " << again << ", " << what);
                    check_invariants(found, after.returned);
                });
            }
        }
    }
}

TEST_CASE("an error at any operation fails the save on all ranks or not at all, and what counts is durable") {
    MemoryFileSystem clean;
    Progress first;
    run_attempt(clean, {10}, 2, first);
    const std::uint64_t before = clean.mutations();
    MemoryFileSystem both;
    run_attempt(both, {10, 20}, 2, first);
    const std::uint64_t operations = both.mutations() - before;
    int failed = 0;
    int survived = 0;
    for (const int error_number : {28 /* ENOSPC */, 5 /* EIO */}) {
        for (const FaultEffect effect : {FaultEffect::None, FaultEffect::Applied}) {
            for (const std::uint64_t times : {std::uint64_t{1}, UINT64_MAX}) {
                for (std::uint64_t k = 0; k < operations; ++k) {
                    MemoryFileSystem files;
                    ManualClock clock;
                    files.make_directories("run");
                    files.sync_directory("");
                    std::vector<std::string> outcome(ranks);
                    std::vector<std::string> later(ranks);
                    bool warned = false;
                    std::unique_ptr<MemoryFileSystem> durable;
                    run_linked_ranks(ranks, RankOrder::Serial, [&](RankLink& link) {
                        const auto rank = static_cast<std::size_t>(link.rank());
                        std::unique_ptr<JournalWriter> journal;
                        if (rank == 0) journal = std::make_unique<JournalWriter>(files, clock, layout, 1);
                        CheckpointStore store(files, clock, toy_settings(layout.checkpoints()), journal.get(),
                                              {});
                        SliceSet mine = std::move(flat_layout(small_tensors(), ranks)[rank]);
                        const auto save = [&](std::int64_t step) {
                            mine.fill(static_cast<std::uint64_t>(step));
                            const auto result = store.save(toy_snapshot(step, mine), link);
                            if (result.ok() && rank == 0) warned = !result.value().warnings.empty();
                            return result.ok() ? std::string("saved") : std::string(result.error().what());
                        };
                        if (save(10) != "saved") fail(Exit::Internal, "the first save must work");
                        if (rank == 0) files.add_fault({error_number, {}, "", k, times, effect});
                        outcome[rank] = save(20);
                        if (rank == 0) {
                            files.clear_faults();
                            durable = files.crash_state(0);
                        }
                        later[rank] = save(30);
                    });
                    CAPTURE(error_number, effect == FaultEffect::Applied, times, k, outcome[0]);
                    REQUIRE(outcome[0] == outcome[1]);
                    REQUIRE(later[0] == "saved");  // once there is room again
                    REQUIRE(later[1] == "saved");
                    LoadReport report;
                    const std::string found = whole_state_step(*durable, report);
                    if (outcome[0] == "saved") {
                        ++survived;
                        REQUIRE(found == "step 20");  // a sync that failed was not trusted when tried again
                    } else {
                        ++failed;
                        REQUIRE((found == "step 10" || found == "step 20"));
                        REQUIRE(outcome[0].find(error_number == 28 ? "ENOSPC" : "EIO") != std::string::npos);
                    }
                    REQUIRE(whole_state_step(files, report) == "step 30");
                }
            }
        }
    }
    CHECK(survived > 50);
    CHECK(failed > 50);
}

TEST_CASE("a close that reports lost writes is answered by writing the file again under a new name") {
    for (const std::uint64_t times : {1, 2, 3}) {
        MemoryFileSystem files;
        ManualClock clock;
        SoloLink solo;
        CheckpointStore store(files, clock, toy_settings("ck"), nullptr, {});
        SliceSet set = std::move(flat_layout(small_tensors(), 1)[0]);
        set.fill(10);
        files.add_fault({5, FileOp::Close, "r00000", 0, times, FaultEffect::None});
        const auto result = store.save(toy_snapshot(10, set), solo);
        CHECK(result.ok() == (times < 3));
        const CheckpointScan scan = scan_checkpoints(files, "ck", "");
        if (!result.ok()) {
            CHECK(result.error().code() == Exit::Resource);
            CHECK(files.list("ck").empty());  // nothing half-written is left
            continue;
        }
        REQUIRE(scan.complete.size() == 1);
        CHECK(scan.complete[0].manifest.files[0].name == "r00000-" + std::to_string(times) + ".st");
        CHECK(files.list(scan.complete[0].path).size() == 3);
    }
}

TEST_CASE("a full disk fails a save, keeps the previous one, and the next save works when there is room") {
    MemoryFileSystem files;
    ManualClock clock;
    SoloLink solo;
    CheckpointStore store(files, clock, toy_settings("ck"), nullptr, {});
    SliceSet set = std::move(flat_layout(small_tensors(), 1)[0]);
    set.fill(10);
    REQUIRE(store.save(toy_snapshot(10, set), solo).ok());
    files.set_capacity(12000);  // less than two checkpoints
    set.fill(20);
    const auto failed = store.save(toy_snapshot(20, set), solo);
    REQUIRE_FALSE(failed.ok());
    CHECK(failed.error().code() == Exit::Resource);
    CHECK(std::string(failed.error().what()).find("ENOSPC") != std::string::npos);
    CHECK(store.newest_complete()->name.step == 10);
    CHECK(files.list("ck").size() == 1);
    files.set_capacity(1U << 20U);
    CHECK(store.save(toy_snapshot(20, set), solo).ok());
    CHECK(store.newest_complete()->name.step == 20);
    files.set_mount(Mount::ReadOnly);
    CHECK(store.save(toy_snapshot(30, set), solo).error().code() == Exit::Resource);
    CHECK(store.newest_complete()->name.step == 20);
}

TEST_CASE("a fenced rank 0 commits nothing, and all ranks hear of it") {
    MemoryFileSystem files;
    ManualClock clock;
    std::vector<Exit> codes(2);
    run_linked_ranks(2, RankOrder::Concurrent, [&](RankLink& link) {
        const auto rank = static_cast<std::size_t>(link.rank());
        StoreSettings settings = toy_settings("ck");
        int calls = 0;
        settings.fence = [&] {
            if (++calls == 2) fail(Exit::Fenced, "run directory taken over by host b, pid 2");
        };
        CheckpointStore store(files, clock, settings, nullptr, {});
        SliceSet mine = std::move(flat_layout(small_tensors(), 2)[rank]);
        mine.fill(10);
        codes[rank] = store.save(toy_snapshot(10, mine), link).error().code();
    });
    CHECK(codes[0] == Exit::Fenced);
    CHECK(codes[1] == Exit::Fenced);
    CHECK(scan_checkpoints(files, "ck", "").complete.empty());
}
