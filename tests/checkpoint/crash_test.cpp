// The machine stops at any operation of a run that takes its lease, saves three times with retention,
// journals and copies every checkpoint to a further place; whatever is found on disk afterwards, the newest
// complete checkpoint loads bit-exact and the next attempt goes on (invariants I1 to I6 of the save
// protocol).
#include <algorithm>
#include <memory>
#include <random>
#include <set>

#include "checkpoint/toy_attempt.h"
#include "support/catch.h"
#include "support/rank_links.h"
#include "support/trials.h"
#include "trainctl/base/error.h"
#include "trainctl/checkpoint/commands.h"

using namespace trainctl;
using namespace trainctl::test;

namespace {

const RunLayout layout(toy_attempt_dir);

// Of all bytes in a directory.
std::size_t contents_hash(const MemoryFileSystem& disk, const std::string& directory) {
    std::string all;
    for (const std::string& path : disk.all_files()) {
        if (path.rfind(directory + "/", 0) == 0) all += path + '\0' + *disk.contents(path) + '\0';
    }
    return std::hash<std::string>()(all);
}

// I1, I2: what looks complete in `root` is complete, to the last byte, and is what its save reported; a crash
// damages nothing.
void check_complete_ones(MemoryFileSystem& disk, const std::string& root, const Progress& progress,
                         std::set<std::size_t>& verified_before) {
    const CheckpointScan scan = scan_checkpoints(disk, root, "run-1");
    for (const CompleteCheckpoint& checkpoint : scan.complete) {
        if (!verified_before.insert(contents_hash(disk, checkpoint.path)).second) continue;  // the same bytes
        const CommandResult verified = checkpoint_verify(disk, checkpoint.path, OutputFormat::Text);
        INFO(verified.out);
        REQUIRE(verified.exit == Exit::Ok);
        const auto reported = progress.reported.find(checkpoint.manifest.directory);
        if (reported != progress.reported.end()) REQUIRE(checkpoint.manifest.state_hash == reported->second);
    }
    for (const RejectedCheckpoint& rejected : scan.rejected) {
        INFO(rejected.text);
        REQUIRE(rejected.reason == RejectReason::Uncommitted);
    }
}

// Everything that must hold on a disk found after a crash.
void check_invariants(MemoryFileSystem& disk, const Progress& progress, std::set<std::size_t>& verified) {
    LoadReport report;
    const std::string found = resume_toy_attempt(disk, report);
    CAPTURE(found, progress.returned, progress.copied);
    if (progress.returned == 0) {
        // Nothing was promised: fresh, or a checkpoint that was complete just before the stop.
        REQUIRE((found == "fresh" || found == "step 10"));
    } else {  // I3, I6
        REQUIRE(found.rfind("step ", 0) == 0);
        REQUIRE(report.manifest.step >= progress.returned);
    }
    check_complete_ones(disk, layout.checkpoints(), progress, verified);
    check_complete_ones(disk, toy_copy_root, progress, verified);
}

// I3 of the copies: they stand alone.
void check_copies_alone(MemoryFileSystem& disk, const Progress& progress) {
    if (progress.copied == 0) return;
    disk.erase(layout.checkpoints());
    LoadReport report;
    const std::string copy = resume_toy_attempt(disk, report);
    CAPTURE(copy);
    REQUIRE(copy.rfind("step ", 0) == 0);
    REQUIRE(report.manifest.step >= progress.copied);
}

// I4: nothing that this attempt made has a name that another one could have made.
void check_own_names(const MemoryFileSystem& disk, int attempt) {
    const std::string own = attempt_name(attempt);
    for (const Operation& operation : disk.operations()) {
        const bool makes = operation.op == FileOp::Create || operation.op == FileOp::Rename;
        const std::string& path = operation.op == FileOp::Rename ? operation.to : operation.path;
        if (!makes || path.find("LEASE") != std::string::npos) continue;
        CAPTURE(path);
        REQUIRE(path.find(own) != std::string::npos);
    }
}

// The next attempt passes the same steps again, cleans up what was left, and its own saves load (I4).
void check_next_attempt(MemoryFileSystem& disk, const AttemptPlan& plan, Progress progress) {
    const int before = progress.attempt;
    run_attempt(disk, {{20, 30, 40}, 2, plan.copying}, progress);
    REQUIRE(progress.returned == 40);
    REQUIRE(progress.attempt >= before);  // the same if the claim itself was lost
    check_own_names(disk, progress.attempt);
    LoadReport report;
    REQUIRE(resume_toy_attempt(disk, report) == "step 40");
    std::vector<std::string> roots{layout.checkpoints()};
    if (plan.copying == Copying::EverySave) roots.emplace_back(toy_copy_root);
    for (const std::string& root : roots) {
        const CheckpointScan scan = scan_checkpoints(disk, root, "run-1");
        INFO(root);
        REQUIRE(scan.complete.size() == 2);
        REQUIRE(scan.rejected.empty());
        REQUIRE(scan.complete[0].name.attempt == progress.attempt);
        REQUIRE(scan.complete[1].name.attempt == progress.attempt);
    }
}

// A disk, and what was promised by whoever wrote to it.
struct Found {
    std::unique_ptr<MemoryFileSystem> disk;
    Progress progress;
};

std::uint64_t count_mutations(const Found& start, const AttemptPlan& plan) {
    const auto files = start.disk->all_kept();
    Progress progress = start.progress;
    run_attempt(*files, plan, progress);
    REQUIRE(progress.returned == plan.steps.back());
    const CheckpointScan scan = scan_checkpoints(*files, layout.checkpoints(), "run-1");
    REQUIRE(scan.complete.size() == static_cast<std::size_t>(plan.keep));
    return files->mutations();
}

// The machine stops at this operation of an attempt.
Found stop_at(const Found& start, const AttemptPlan& plan, std::uint64_t operation) {
    Found found{start.disk->all_kept(), start.progress};
    found.disk->crash_at(operation);
    try {
        run_attempt(*found.disk, plan, found.progress);
    } catch (const Crash&) {
    }
    REQUIRE(found.disk->crashed());
    // That an attempt passes steps again takes nothing back.
    found.progress.returned = std::max(found.progress.returned, start.progress.returned);
    found.progress.copied = std::max(found.progress.copied, start.progress.copied);
    return found;
}

Found empty_disk() { return {std::make_unique<MemoryFileSystem>(), {}}; }

// What attempts that were stopped anywhere, one or two of them, left for the next.
Found interrupted_run(std::uint64_t seed, const AttemptPlan& plan) {
    std::mt19937_64 random(seed);
    Found found = empty_disk();
    for (std::uint64_t attempts = 1 + seed % 2; attempts > 0; --attempts) {
        Found stopped = stop_at(found, plan, random() % count_mutations(found, plan));
        found = {stopped.disk->random_crash_state(random()), stopped.progress};
    }
    return found;
}

// Stops at every operation, all states up to a limit; returns how many.
std::uint64_t check_every_stop(const Found& start, const AttemptPlan& plan, const std::string& name) {
    constexpr std::uint64_t states_per_stop = 34;
    std::uint64_t states = 0;
    std::set<std::size_t> verified;
    const std::uint64_t mutations = count_mutations(start, plan);
    for (std::uint64_t k = 0; k < mutations; ++k) {
        const Found stopped = stop_at(start, plan, k);
        int continued = 0;
        for_each_crash_state(
            *stopped.disk, states_per_stop, [&](MemoryFileSystem& disk, const std::string& what) {
                INFO(name << ", keep " << plan.keep << ", stopped at operation " << k << ", " << what);
                if (k % 5 == 0 && continued++ < 2) {
                    check_next_attempt(disk, plan, stopped.progress);
                } else {
                    check_invariants(disk, stopped.progress, verified);
                    if (states % 4 == 0) check_copies_alone(disk, stopped.progress);
                }
                ++states;
            });
    }
    return states;
}

}  // namespace

TEST_CASE("a crash at any operation, in any state it may leave, loses nothing that was saved", "[C1]") {
    const AttemptPlan copied{{10, 20, 30}, 2, Copying::EverySave};
    const AttemptPlan lone{{10, 20, 30}, 1, Copying::None};  // refused by the job file; survived all the same
    const TrialRange trials = trial_range(4);
    std::uint64_t states = 0;
    for (std::uint64_t trial = trials.first; trial < trials.end; ++trial) {
        const std::string name = "trial " + std::to_string(trial);
        if (trial < 2) {
            states += check_every_stop(empty_disk(), trial == 0 ? copied : lone, name);
        } else {
            states += check_every_stop(interrupted_run(trial, copied), copied, name);
        }
    }
    report_trials("C1", states, "crash states");
    if (trials.first == 0 && trials.end >= 4) CHECK(states >= 20'000);
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
