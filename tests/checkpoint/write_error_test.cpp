// Disks that are full or fail: at every operation of a save with retention and of a copy, once or for good.
// Nothing that was saved is lost, all ranks hear the same, and saving goes on when the disk works again.
#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <random>

#include "checkpoint/toy_attempt.h"
#include "support/catch.h"
#include "support/rank_links.h"
#include "support/trials.h"
#include "trainctl/base/error.h"
#include "trainctl/checkpoint/commands.h"
#include "trainctl/checkpoint/tier_copy.h"

using namespace trainctl;
using namespace trainctl::test;

namespace {

constexpr int ranks = 2;
const RunLayout layout(toy_attempt_dir);

// What is wrong with the disk while step 20 is saved and copied.
struct Trouble {
    std::optional<Fault> fault;
    std::optional<std::uint64_t> capacity;
    std::int64_t keep = 2;
};

// What each rank was told.
struct Told {
    std::vector<std::string> saved = std::vector<std::string>(ranks);
    std::vector<std::string> copied = std::vector<std::string>(ranks);
    std::vector<std::string> later = std::vector<std::string>(ranks);  // once the trouble is over
    std::unique_ptr<MemoryFileSystem> durable;                         // before that
    std::vector<Operation> operations;                                 // under trouble
};

template <class T>
std::string outcome_of(const Result<T>& result) {
    return result.ok() ? std::string("done") : std::string(result.error().what());
}

// Step 10 is saved and copied, 20 is under trouble, 30 is after it.
Told run_through(MemoryFileSystem& files, const Trouble& trouble) {
    ManualClock clock;
    Told told;
    std::size_t operations_before = 0;
    files.make_directories(toy_attempt_dir);
    files.sync_directory("");
    run_linked_ranks(ranks, RankOrder::Serial, [&](RankLink& link) {
        const auto rank = static_cast<std::size_t>(link.rank());
        std::unique_ptr<JournalWriter> journal;
        if (rank == 0) journal = std::make_unique<JournalWriter>(files, clock, layout, 1);
        StoreSettings settings = toy_settings(layout.checkpoints());
        settings.retention.keep_latest = trouble.keep;
        CheckpointStore store(files, clock, settings, journal.get(), {});
        CopySettings how;
        how.from = {"first", layout.checkpoints(), Reach::Everybody};
        how.run_id = "run-1";
        how.unwanted = [&] { return store.unwanted_copies(); };
        TierCopier copier(files, clock, how);
        SliceSet mine = std::move(flat_layout(small_tensors(), ranks)[rank]);
        std::string directory;  // of the newest save
        const auto save = [&](std::int64_t step) {
            mine.fill(static_cast<std::uint64_t>(step));
            const auto result = store.save(toy_snapshot(step, mine), link);
            if (result.ok()) directory = result.value().directory;
            return outcome_of(result);
        };
        const auto copy = [&] {
            return outcome_of(copier.copy(directory, {"second", toy_copy_root, Reach::Everybody}, link));
        };
        if (save(10) != "done" || copy() != "done") fail(Exit::Internal, "the first save must work");
        if (rank == 0) {
            operations_before = files.operations().size();
            if (trouble.fault) files.add_fault(*trouble.fault);
            if (trouble.capacity) files.set_capacity(*trouble.capacity);
        }
        told.saved[rank] = save(20);
        told.copied[rank] = copy();
        if (rank == 0) {
            told.operations = files.operations();
            told.operations.erase(told.operations.begin(),
                                  told.operations.begin() + static_cast<std::ptrdiff_t>(operations_before));
            files.clear_faults();
            files.set_capacity(1U << 30U);
            told.durable = files.crash_state(0);
        }
        told.later[rank] = save(30);
        if (told.later[rank] == "done") told.later[rank] = copy();
    });
    return told;
}

std::uint64_t bytes_of_one_checkpoint() {
    MemoryFileSystem files;
    run_through(files, {});
    std::uint64_t bytes = 0;
    for (const std::string& path : files.all_files())
        if (path.rfind(toy_copy_root, 0) == 0 && path.find("s000000030") != std::string::npos)
            bytes += files.contents(path)->size();
    return bytes;
}

// Every kind of trouble, mixed, so that any part of the list has its share of all.
std::vector<Trouble> all_troubles() {
    std::vector<Trouble> troubles;
    for (const std::int64_t keep : {2, 1}) {
        MemoryFileSystem clean;
        std::uint64_t mutating = 0;
        std::uint64_t closing = 0;
        for (const Operation& operation : run_through(clean, {{}, {}, keep}).operations) {
            if (operation.mutating) ++mutating;
            if (operation.op == FileOp::Close) ++closing;
        }
        for (const int error_number : {ENOSPC, EDQUOT, EIO}) {
            for (const FaultEffect effect : {FaultEffect::None, FaultEffect::Applied}) {
                for (const std::uint64_t times : {std::uint64_t{1}, UINT64_MAX}) {
                    for (std::uint64_t k = 0; k < mutating; ++k)
                        troubles.push_back({Fault{error_number, {}, "", k, times, effect}, {}, keep});
                    for (std::uint64_t k = 0; k < closing; ++k)
                        troubles.push_back(
                            {Fault{error_number, FileOp::Close, "", k, times, effect}, {}, keep});
                }
            }
        }
        // A disk that holds 0.5 to 3 checkpoints more than the first and its copy.
        const std::uint64_t one = bytes_of_one_checkpoint();
        for (std::uint64_t size = 0; size < 50; ++size)
            troubles.push_back({{}, 2 * one + one / 2 + one * 5 * size / 98, keep});
    }
    std::shuffle(troubles.begin(), troubles.end(), std::mt19937_64(8));
    return troubles;
}

bool names_the_cause(const std::string& text) {
    for (const char* cause : {"ENOSPC", "EDQUOT", "EIO"})
        if (text.find(cause) != std::string::npos) return true;
    return false;
}

}  // namespace

TEST_CASE("a disk that is full or fails at any operation costs a save, on all ranks alike, and nothing else",
          "[C8]") {
    const std::vector<Trouble> troubles = all_troubles();
    CHECK(troubles.size() >= 1500);
    const TrialRange trials = trial_range(600);
    int saved = 0;
    int failed = 0;
    int copies_failed = 0;
    for (std::uint64_t trial = trials.first; trial < std::min(trials.end, troubles.size()); ++trial) {
        MemoryFileSystem files;
        const Told told = run_through(files, troubles[trial]);
        CAPTURE(trial, told.saved[0], told.copied[0]);
        REQUIRE(told.saved[0] == told.saved[1]);
        REQUIRE(told.copied[0] == told.copied[1]);
        REQUIRE(told.later[0] == "done");  // once the disk works again
        REQUIRE(told.later[1] == "done");
        LoadReport report;
        const std::string found = resume_toy_attempt(*told.durable, report);
        if (told.saved[0] == "done") {
            ++saved;
            REQUIRE(found == "step 20");  // a sync that failed was not trusted when tried again
        } else {
            ++failed;
            REQUIRE((found == "step 10" || found == "step 20"));
            REQUIRE(names_the_cause(told.saved[0]));
        }
        if (told.copied[0] != "done") {
            ++copies_failed;
            REQUIRE(names_the_cause(told.copied[0]));
        }
        REQUIRE(resume_toy_attempt(files, report) == "step 30");
        // The copies stand alone.
        told.durable->erase(layout.checkpoints());
        const std::string copy = resume_toy_attempt(*told.durable, report);
        const bool second_copied = told.saved[0] == "done" && told.copied[0] == "done";
        REQUIRE((copy == "step 20" || (!second_copied && copy == "step 10")));
        files.erase(layout.checkpoints());
        REQUIRE(resume_toy_attempt(files, report) == "step 30");
    }
    report_trials("C8", static_cast<std::uint64_t>(saved) + static_cast<std::uint64_t>(failed),
                  "disk faults");
    if (trials.end - trials.first >= 600) {
        CHECK(saved > 60);
        CHECK(failed > 60);
        CHECK(copies_failed > 60);
    }
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
