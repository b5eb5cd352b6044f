// Damage is found, named, and answered by the next older checkpoint.
#include <set>

#include "checkpoint/toy_state.h"
#include "support/catch.h"
#include "support/memory_file_system.h"
#include "support/rank_links.h"
#include "trainctl/base/error.h"
#include "trainctl/checkpoint/commands.h"
#include "trainctl/rundir/commit.h"

using namespace trainctl;
using namespace trainctl::test;

namespace {

// Steps 10 and 20, saved by two ranks.
struct Saved {
    MemoryFileSystem files;
    ManualClock clock;
    std::string newest;  // path

    Saved() {
        run_linked_ranks(2, RankOrder::Serial, [&](RankLink& link) {
            CheckpointStore store(files, clock, toy_settings("ck"), nullptr, {});
            SliceSet mine = std::move(flat_layout(small_tensors(), 2)[static_cast<std::size_t>(link.rank())]);
            for (const std::int64_t step : {10, 20}) {
                mine.fill(static_cast<std::uint64_t>(step));
                store.save(toy_snapshot(step, mine), link).value();
            }
        });
        newest = scan_checkpoints(files, "ck", "run-1").complete.at(0).path;
    }

    // Loads on one rank; what was passed over goes to `why`.
    std::string load(std::string* why = nullptr) {
        SoloLink solo;
        SliceSet all = std::move(flat_layout(small_tensors(), 1)[0]);
        all.clear();
        CheckpointStore store(files, clock, toy_settings("ck"), nullptr, {});
        try {
            const LoadReport report = store.load_newest({all.slices(), {"consumed_samples"}}, solo);
            if (why != nullptr) {
                for (const std::string& text : report.passed_over) *why += text + "\n";
            }
            if (!all.holds(static_cast<std::uint64_t>(report.manifest.step))) return "wrong contents";
            return "step " + std::to_string(report.manifest.step);
        } catch (const Error& error) {
            if (error.code() != Exit::BadInput) return "wrong code";
            return error.what();
        }
    }
    bool verifies() {
        try {
            return checkpoint_verify(files, newest, OutputFormat::Text).exit == Exit::Ok;
        } catch (const Error& error) {
            CHECK(error.code() == Exit::BadInput);
            return false;
        }
    }
};

}  // namespace

TEST_CASE("every flipped bit of COMMIT, MANIFEST and payload is found, and the older checkpoint is loaded") {
    Saved saved;
    REQUIRE(saved.load() == "step 20");
    for (const char* name : {"COMMIT", "MANIFEST", "r00000.st", "r00001.st"}) {
        const std::string path = saved.newest + "/" + name;
        const std::uint64_t bits = saved.files.contents(path)->size() * 8;
        const std::uint64_t stride = bits / 150 + 1;
        for (std::uint64_t bit = stride / 3; bit < bits; bit += stride) {
            CAPTURE(name, bit);
            saved.files.flip_bit(path, bit);
            REQUIRE_FALSE(saved.verifies());
            // With chunks this small the header is in chunks of its own, which only `ckpt verify` reads.
            const bool read_by_load = std::string(name).front() != 'r' || bit / 8 >= 4096;
            if (read_by_load) {
                std::string why;
                REQUIRE(saved.load(&why) == "step 10");
                REQUIRE(mentions(why, name));
            }
            saved.files.flip_bit(path, bit);
        }
    }
    REQUIRE(saved.load() == "step 20");
}

TEST_CASE("truncated, empty, missing, lengthened, exchanged: each has its own message") {
    Saved saved;
    const auto after = [&](const std::function<void(MemoryFileSystem&)>& damage) {
        std::vector<std::pair<std::string, std::string>> before;
        for (const std::string& path : saved.files.all_files())
            before.emplace_back(path, *saved.files.contents(path));
        damage(saved.files);
        std::string why;
        CHECK(saved.load(&why) == "step 10");
        CHECK_FALSE(saved.verifies());
        for (const auto& [path, contents] : before) saved.files.put(path, contents);
        REQUIRE(saved.load() == "step 20");
        return why;
    };
    const std::string payload = saved.newest + "/r00001.st";
    const std::uint64_t size = saved.files.contents(payload)->size();
    std::set<std::string> messages;
    const auto expect = [&](const std::string& why, const std::string& part) {
        CAPTURE(why);
        CHECK(mentions(why, part));
        CHECK(messages.insert(why).second);
    };
    expect(
        after([&](MemoryFileSystem& files) { files.truncate(payload, size - 1); }),
        "r00001.st is truncated: " + std::to_string(size) + " bytes expected, " + std::to_string(size - 1));
    expect(after([&](MemoryFileSystem& files) { files.truncate(payload, 0); }), "r00001.st is empty");
    expect(after([&](MemoryFileSystem& files) { files.put(payload, *files.contents(payload) + "x"); }),
           "longer than written");
    expect(after([&](MemoryFileSystem& files) { files.erase(payload); }), "r00001.st is missing");
    expect(after([&](MemoryFileSystem& files) { files.flip_bit(payload, (size - 1) * 8); }),
           "r00001.st is damaged: chunk " + std::to_string((size - 1) / 512) + " (bytes ");
    expect(after([&](MemoryFileSystem& files) { files.truncate(saved.newest + "/MANIFEST", 100); }),
           "MANIFEST has the wrong size");
    expect(after([&](MemoryFileSystem& files) { files.erase(saved.newest + "/MANIFEST"); }),
           "MANIFEST is missing");
    expect(after([&](MemoryFileSystem& files) { files.truncate(saved.newest + "/COMMIT", 0); }),
           "COMMIT is empty");
    expect(after([&](MemoryFileSystem& files) { files.erase(saved.newest + "/COMMIT"); }), "no COMMIT");
    // A payload file of another rank, and of another step, under the right name.
    expect(after([&](MemoryFileSystem& files) { files.put(payload, std::string(size, '\0')); }),
           "chunk 8 (bytes 4096 to ");
    const std::string older = scan_checkpoints(saved.files, "ck", "run-1").complete.at(1).path;
    expect(after([&](MemoryFileSystem& files) {
               std::string other = *files.contents(older + "/r00001.st");
               other.resize(size);
               files.put(payload, other);
           }),
           "chunk");
    // COMMIT and MANIFEST of another save.
    expect(after([&](MemoryFileSystem& files) {
               files.put(saved.newest + "/COMMIT", *files.contents(older + "/COMMIT"));
               files.put(saved.newest + "/MANIFEST", *files.contents(older + "/MANIFEST"));
           }),
           "was written as");
}

TEST_CASE("only the ranges that are wanted are read, and only damage that matters is met") {
    Saved saved;
    SoloLink solo;
    CheckpointStore store(saved.files, saved.clock, toy_settings("ck"), nullptr, {});
    SliceSet part;
    part.add(small_tensors()[0], whole_box(small_tensors()[0].global), {0, 3});  // lies in r00000.st
    saved.files.flip_bit(saved.newest + "/r00001.st", 4096 * 8);
    const LoadReport report = store.load_newest({part.slices(), {}}, solo);
    CHECK(report.manifest.step == 20);
    CHECK(part.holds(20));
    CHECK_FALSE(report.state_hash);
}

TEST_CASE("a chunk that reads wrong once is read again; an unreadable file is passed over") {
    Saved saved;
    saved.files.add_fault({5, FileOp::Read, saved.newest + "/r00000.st", 0, 1, FaultEffect::None});
    CHECK(saved.load() == "step 20");
    saved.files.clear_faults();
    saved.files.add_fault({5, FileOp::Read, saved.newest + "/r00000.st", 0, UINT64_MAX, FaultEffect::None});
    std::string why;
    CHECK(saved.load(&why) == "step 10");
    CHECK(mentions(why, "EIO"));
    saved.files.clear_faults();
    saved.files.add_fault({13, FileOp::OpenRead, "r0000", 0, UINT64_MAX, FaultEffect::None});
    CHECK(mentions(saved.load(), "EACCES"));
}

TEST_CASE("damage seen by one rank only moves all ranks to the older checkpoint") {
    Saved saved;
    saved.files.flip_bit(saved.newest + "/r00001.st", 4096 * 8);
    std::vector<std::int64_t> steps(2);
    std::vector<bool> right(2);
    std::string why;
    run_linked_ranks(2, RankOrder::Concurrent, [&](RankLink& link) {
        const auto rank = static_cast<std::size_t>(link.rank());
        SliceSet mine = std::move(flat_layout(small_tensors(), 2)[rank]);
        CheckpointStore store(saved.files, saved.clock, toy_settings("ck"), nullptr, {});
        const LoadReport report = store.load_newest({mine.slices(), {}}, link);
        steps[rank] = report.manifest.step;
        right[rank] = mine.holds(10);
        if (rank == 0) why = report.passed_over.at(0);
    });
    CHECK(steps == std::vector<std::int64_t>{10, 10});
    CHECK(right[0]);
    CHECK(right[1]);
    CHECK(mentions(why, "[rank 1] "));
}

TEST_CASE("when nothing loads, the error says why for every candidate and nothing starts at step 0") {
    Saved saved;
    const CheckpointScan scan = scan_checkpoints(saved.files, "ck", "run-1");
    saved.files.flip_bit(scan.complete[0].path + "/r00000.st", 4096 * 8);
    saved.files.truncate(scan.complete[1].path + "/r00000.st", 5);
    const std::string text = saved.load();
    CHECK(mentions(text, "not starting at step 0"));
    CHECK(mentions(text, scan.complete[0].manifest.directory));
    CHECK(mentions(text, "truncated"));
}

TEST_CASE("a MANIFEST without a needed counter is refused by name, even with a valid COMMIT") {
    Saved saved;
    Manifest manifest = scan_checkpoints(saved.files, "ck", "run-1").complete.at(0).manifest;
    manifest.counters.erase("consumed_samples");
    const std::string text = manifest_text(manifest);
    saved.files.put(saved.newest + "/MANIFEST", text);
    saved.files.put(saved.newest + "/COMMIT", commit_text(commit_of(manifest, text)));
    CHECK(mentions(saved.load(), "counter 'consumed_samples' is missing"));
}

TEST_CASE("what is stored is what was in memory: master weights are never derived from a rounded copy") {
    MemoryFileSystem files;
    ManualClock clock;
    SoloLink solo;
    CheckpointStore store(files, clock, toy_settings("ck"), nullptr, {});
    const ToyTensor master{"w", Shape{64}, DType::F32};
    const ToyTensor rounded{"w.bf16", Shape{64}, DType::BF16};
    SliceSet both;
    both.add(master, whole_box(master.global), {0, 64});
    both.add(rounded, whole_box(rounded.global), {0, 64});
    both.fill(3);
    const std::string directory = store.save(toy_snapshot(10, both), solo).value().directory;
    const std::string path = "ck/" + directory + "/r00000.st";
    REQUIRE(files.contents(path)->size() == 4096 + 64 * 4 + 64 * 2);
    SliceSet only_master;
    only_master.add(master, whole_box(master.global), {0, 64});
    store.load_newest({only_master.slices(), {}}, solo);
    CHECK(only_master.holds(3));
    both.clear();
    CHECK(store.load_newest({both.slices(), {}}, solo).state_hash);
    CHECK(both.holds(3));
}
