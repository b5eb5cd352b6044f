// Copies of a checkpoint: verified on the way, whole or absent, and never worse than before after any
// failure.
#include <nlohmann/json.hpp>

#include "checkpoint/payload_copy.h"
#include "checkpoint/replica.h"
#include "checkpoint/toy_run.h"
#include "support/catch.h"
#include "support/memory_file_system.h"
#include "support/rank_links.h"
#include "trainctl/base/error.h"
#include "trainctl/checkpoint/commands.h"
#include "trainctl/checkpoint/suspicion.h"

using namespace trainctl;
using namespace trainctl::test;

namespace {

// A checkpoint of step 10 by two ranks in "run/checkpoints"; returns its path.
std::string save_toy(MemoryFileSystem& files, std::int64_t step = 10) {
    ManualClock clock;
    std::string directory;
    run_linked_ranks(2, RankOrder::Serial, [&](RankLink& link) {
        CheckpointStore store(files, clock, toy_settings("run/checkpoints"), nullptr, {});
        SliceSet mine = std::move(flat_layout(small_tensors(), 2)[static_cast<std::size_t>(link.rank())]);
        mine.fill(static_cast<std::uint64_t>(step));
        const SaveReport report = store.save(toy_snapshot(step, mine), link).value();
        if (link.rank() == 0) directory = report.directory;
    });
    return join_path("run/checkpoints", directory);
}

// The file system as save_toy left it, and its first payload file.
struct Source {
    MemoryFileSystem files;
    std::string path = save_toy(files);
    Manifest manifest = read_committed(files, path).manifest;
    const ManifestFile& file = manifest.files.at(0);
    std::string bytes = files.contents(join_path(path, file.name)).value();

    Source() { files.put("copy/marker", ""); }
    PayloadCopy copy() { return copy_payload_file(files, path, "copy", file, manifest.chunk_bytes); }
    std::optional<std::string> copied() { return files.contents(join_path("copy", file.name)); }
};

}  // namespace

TEST_CASE("a payload file is copied once, and a wrong copy is replaced") {
    Source source;
    REQUIRE(source.file.chunk_crcs.size() > 2);
    CHECK(source.copy() == PayloadCopy::Written);
    CHECK(source.copied() == source.bytes);
    CHECK(source.copy() == PayloadCopy::ThereAlready);
    source.files.flip_bit(join_path("copy", source.file.name), 8 * (source.bytes.size() - 1));
    CHECK(source.copy() == PayloadCopy::Written);
    CHECK(source.copied() == source.bytes);
    source.files.truncate(join_path("copy", source.file.name), 100);
    CHECK(source.copy() == PayloadCopy::Written);
    CHECK(source.files.crash_state(0)->contents(join_path("copy", source.file.name)) == source.bytes);
    CHECK(source.files.list("copy").size() == 2);
}

TEST_CASE("a damaged payload file is not copied, wherever the damage is, and the chunk is named") {
    const std::uint64_t bits = Source().bytes.size() * 8;
    for (std::uint64_t bit = 0; bit < bits; bit += 997) {
        Source source;
        source.files.flip_bit(join_path(source.path, source.file.name), bit);
        const auto error = error_of([&] { source.copy(); });
        REQUIRE(error.has_value());
        CHECK(error->code() == Exit::BadInput);
        CHECK(std::string(error->what()).find("chunk " + std::to_string(bit / 8 / 512)) != std::string::npos);
        REQUIRE_FALSE(source.copied().has_value());
    }
}

TEST_CASE("a copy of a payload file survives a failing disk up to its last try, and leaves nothing in vain") {
    for (const FileOp op : {FileOp::Create, FileOp::Write, FileOp::Sync, FileOp::Close, FileOp::Rename,
                            FileOp::SyncDirectory}) {
        for (const FaultEffect effect : {FaultEffect::None, FaultEffect::Applied}) {
            for (const std::uint64_t times : {std::uint64_t{2}, UINT64_MAX}) {
                Source source;
                source.files.add_fault({5, op, "copy", 0, times, effect});
                const auto error = error_of([&] { source.copy(); });
                CAPTURE(static_cast<int>(op), effect == FaultEffect::Applied, times);
                const auto durable = source.files.crash_state(0)->contents("copy/" + source.file.name);
                if (times == 2) {
                    CHECK_FALSE(error.has_value());
                    CHECK(durable == source.bytes);
                } else {
                    REQUIRE(error.has_value());
                    CHECK(error->code() == Exit::Resource);
                    if (source.copied()) CHECK(source.copied() == source.bytes);
                    source.files.clear_faults();
                    source.copy();
                    CHECK(source.copied() == source.bytes);
                }
            }
        }
    }
}

TEST_CASE("a crash at any operation of a copy leaves the whole payload file or none") {
    Source clean;
    const std::uint64_t before = clean.files.mutations();
    clean.copy();
    const std::uint64_t after = clean.files.mutations();
    for (std::uint64_t k = before; k < after; ++k) {
        Source source;
        source.files.crash_at(k);
        CHECK_THROWS_AS(source.copy(), Crash);
        for_each_crash_state(source.files, 40, [&](MemoryFileSystem& disk, const std::string& what) {
            INFO("stopped at operation " << k << ", " << what);
            const auto found = disk.contents(join_path("copy", source.file.name));
            REQUIRE((!found || found == source.bytes));
            copy_payload_file(disk, source.path, "copy", source.file, source.manifest.chunk_bytes);
            REQUIRE(disk.contents(join_path("copy", source.file.name)) == source.bytes);
            REQUIRE(disk.list("copy").size() == 2);  // what was begun is gone
        });
    }
}

namespace {

CommandResult copy(ToyRun& run, const std::string& from, const std::string& to,
                   Execution execution = Execution::Real) {
    return checkpoint_copy(run.files, {from, {}, to, execution, OutputFormat::Text});
}

CommandResult restore(ToyRun& run, const std::string& from, std::optional<std::int64_t> step = {},
                      Execution execution = Execution::Real) {
    return checkpoint_restore(run.services(), {from, step, "run", execution, OutputFormat::Text});
}

bool loads(ToyRun& run, std::int64_t step) {
    const bool there = run.continued("auto", {}).manifest.step == step;
    return there && run.state.holds(static_cast<std::uint64_t>(step));
}

}  // namespace

TEST_CASE("a checkpoint is copied whole, once; the copy loads, and damage of either side is seen") {
    ToyRun run;
    run.attempt({10, 20});
    const std::uint64_t before = run.files.mutations();
    CHECK(mentions(copy(run, "run", "kept/here", Execution::DryRun).out, "would be written"));
    CHECK(run.files.mutations() == before);
    remember_health(run.files, run.path(20));
    pin_checkpoint(run.files, run.path(20));
    CHECK(mentions(copy(run, "run", "kept/here").out, "1 of 1 file"));
    CHECK(mentions(copy(run, "run", "kept/here/").out, "there already"));
    const std::string replica = scan_checkpoints(run.files, "kept/here", "run-1").complete.at(0).path;
    CHECK(checkpoint_verify(run.files, replica, OutputFormat::Text).exit == Exit::Ok);
    CHECK(checkpoint_verify(*run.files.crash_state(0), replica, OutputFormat::Text).exit == Exit::Ok);
    CHECK(is_healthy(run.files, replica));
    CHECK_FALSE(is_pinned(run.files, replica));  // a wish for the place where it was made
    // A damaged copy is mended from the original, a damaged original is not copied.
    run.files.flip_bit(replica + "/r00000.st", 8 * 4200);
    CHECK(checkpoint_verify(run.files, replica, OutputFormat::Text).exit == Exit::BadInput);
    CHECK(mentions(copy(run, "run", "kept/here").out, "only that was replaced"));
    CHECK_FALSE(read_suspicion(run.files, replica).has_value());
    run.files.flip_bit(run.path(20) + "/r00000.st", 8 * 4200);
    const auto error = error_of([&] { copy(run, "run", "elsewhere"); });
    REQUIRE(error.has_value());
    CHECK(error->code() == Exit::BadInput);
    CHECK(mentions(error->what(), "chunk"));
    CHECK(read_suspicion(run.files, run.path(20)).has_value());
    CHECK(scan_checkpoints(run.files, "elsewhere", "").complete.empty());
    // The replica is the better one; and nothing is taken apart for itself.
    CHECK(error_of([&] { copy(run, "run", "run/checkpoints"); })->code() == Exit::Usage);
    CHECK(error_of([&] { copy(run, "run", "run/./checkpoints"); })->code() == Exit::BadInput);
    CHECK(run.steps() == std::vector<std::int64_t>{20, 10});
    CHECK(mentions(restore(run, "kept/here").out, "only that was replaced"));
    CHECK(loads(run, 20));
}

TEST_CASE("restore brings back what is missing or damaged, whatever the damage, and says so in the journal") {
    const std::vector<std::function<void(MemoryFileSystem&, const std::string&)>> damages = {
        [](MemoryFileSystem& files, const std::string& path) { files.erase(path); },
        [](MemoryFileSystem& files, const std::string& path) { files.erase(path + "/COMMIT"); },
        [](MemoryFileSystem& files, const std::string& path) { files.truncate(path + "/COMMIT", 20); },
        [](MemoryFileSystem& files, const std::string& path) { files.flip_bit(path + "/MANIFEST", 800); },
        [](MemoryFileSystem& files, const std::string& path) { files.erase(path + "/MANIFEST"); },
        [](MemoryFileSystem& files, const std::string& path) { files.truncate(path + "/r00000.st", 9); },
        [](MemoryFileSystem& files, const std::string& path) { files.erase(path + "/r00000.st"); },
        [](MemoryFileSystem& files, const std::string& path) {
            files.flip_bit(path + "/r00000.st", 8 * 4200);
            checkpoint_verify(files, path, OutputFormat::Text);  // leaves its mark
        },
        [](MemoryFileSystem& files, const std::string&) { files.erase("run/checkpoints"); }};
    for (std::size_t index = 0; index < damages.size(); ++index) {
        CAPTURE(index);
        ToyRun run;
        run.attempt({10, 20});
        copy(run, "run", "kept");
        const std::string path = run.path(20);
        damages[index](run.files, path);
        const std::uint64_t before = run.files.mutations();
        restore(run, "kept", 20, Execution::DryRun);
        CHECK(run.files.mutations() == before);
        restore(run, "kept");
        CHECK(checkpoint_verify(run.files, path, OutputFormat::Text).exit == Exit::Ok);
        CHECK_FALSE(read_suspicion(run.files, path).has_value());
        CHECK(loads(run, 20));
        const std::vector<JournalRecord> records = run.journal().records;
        CHECK(std::any_of(records.begin(), records.end(), [](const JournalRecord& record) {
            return record.event == JournalEvent::Verify && mentions(record.text, "restored from kept/");
        }));
        CHECK(mentions(restore(run, "kept").out, "there already"));
    }
}

TEST_CASE(
    "restore takes this run's checkpoints only, and not beside a living run; a copy replaces no other") {
    ToyRun run;
    run.attempt({10});
    copy(run, "run", "kept");
    // Another run's, of a higher step, lies there as well.
    StoreSettings other = toy_settings("kept", 9);
    other.run_id = "run-2";
    run.state.fill(99);
    ManualClock clock;
    const std::string foreign = CheckpointStore(run.files, clock, other, nullptr, {})
                                    .save(toy_snapshot(99, run.state), run.solo)
                                    .value()
                                    .directory;
    run.files.erase(run.path(10));
    CHECK(error_of([&] { restore(run, "kept/" + foreign); })->code() == Exit::BadInput);
    CHECK(error_of([&] { restore(run, "kept", 99); })->code() == Exit::BadInput);
    CHECK(mentions(restore(run, "kept").out, "step 10"));
    CHECK(run.steps() == std::vector<std::int64_t>{10});
    run.processes.me.pid = 7;
    run.begin();
    run.processes.me.pid = 8;
    run.processes.liveness[7] = Liveness::Alive;
    CHECK(error_of([&] { restore(run, "kept"); })->code() == Exit::Fenced);
    run.end();
    // The same name with other contents: neither is lost.
    ToyRun twin;
    twin.begin();
    twin.state.fill(11);
    twin.store->save(toy_snapshot(10, twin.state), twin.solo).value();
    twin.end();
    const std::string directory = twin.scan().complete.at(0).manifest.directory;
    for (const char* name : {"COMMIT", "MANIFEST", "r00000.st"}) {
        twin.files.put("kept/" + directory + "/" + name,
                       run.files.contents(run.path(10) + "/" + name).value());
    }
    CHECK(error_of([&] { copy(twin, "run", "kept"); })->code() == Exit::BadInput);
    CHECK(checkpoint_verify(twin.files, "kept/" + directory, OutputFormat::Text).exit == Exit::Ok);
}

TEST_CASE(
    "a crash at any operation of a copy leaves a whole replica or none, and doing it again completes it") {
    for (const bool mends : {false, true}) {
        const auto prepare = [&](ToyRun& run) {
            run.attempt({10});
            if (!mends) return;
            copy(run, "run", "kept");
            const std::string replica = scan_checkpoints(run.files, "kept", "").complete.at(0).path;
            run.files.flip_bit(replica + "/r00000.st", 8 * 4200);
            remember_suspicion(run.files, replica, "wrong bytes");
        };
        ToyRun clean;
        prepare(clean);
        const std::uint64_t before = clean.files.mutations();
        copy(clean, "run", "kept");
        const std::uint64_t after = clean.files.mutations();
        for (std::uint64_t k = before; k < after; ++k) {
            ToyRun run;
            prepare(run);
            run.files.crash_at(k);
            CHECK_THROWS_AS(copy(run, "run", "kept"), Crash);
            for_each_crash_state(run.files, 16, [&](MemoryFileSystem& disk, const std::string& what) {
                INFO("mends " << mends << ", stopped at operation " << k << ", " << what);
                ToyRun found(&disk);
                const CheckpointScan scan = scan_checkpoints(disk, "kept", "");
                for (const CompleteCheckpoint& replica : scan.complete) {
                    if (replica.suspect) continue;  // the damaged one, as it was or just mended
                    REQUIRE(checkpoint_verify(disk, replica.path, OutputFormat::Text).exit == Exit::Ok);
                }
                copy(found, "run", "kept");
                const auto replicas = scan_checkpoints(disk, "kept", "").complete;
                REQUIRE(replicas.size() == 1);
                REQUIRE_FALSE(replicas[0].suspect.has_value());
                REQUIRE(checkpoint_verify(disk, replicas[0].path, OutputFormat::Text).exit == Exit::Ok);
                REQUIRE(disk.list(replicas[0].path).size() == 3);
                REQUIRE(loads(found, 10));
            });
        }
    }
}

TEST_CASE("a copy to a full disk fails, and is completed when there is room") {
    ToyRun run;
    run.attempt({10});
    run.files.set_capacity(12000);
    const auto error = error_of([&] { copy(run, "run", "kept"); });
    REQUIRE(error.has_value());
    CHECK(error->code() == Exit::Resource);
    CHECK(scan_checkpoints(run.files, "kept", "").complete.empty());
    run.files.set_capacity(1U << 20U);
    CHECK(mentions(copy(run, "run", "kept").out, "interrupted copy"));
    CHECK(scan_checkpoints(run.files, "kept", "").complete.size() == 1);
}
