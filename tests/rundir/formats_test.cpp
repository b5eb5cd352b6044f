// safetensors, COMMIT, run.json, journal, names.
#include <random>

#include "support/catch.h"
#include "support/manual_clock.h"
#include "support/memory_file_system.h"
#include "trainctl/base/text.h"
#include "trainctl/rundir/commit.h"
#include "trainctl/rundir/durable_file.h"
#include "trainctl/rundir/journal.h"
#include "trainctl/rundir/layout.h"
#include "trainctl/rundir/run_identity.h"
#include "trainctl/rundir/run_record.h"
#include "trainctl/rundir/safetensors.h"

using namespace trainctl;
using namespace trainctl::test;

namespace {

std::string refusal(const std::function<void()>& action) {
    try {
        action();
    } catch (const Error& error) {
        CHECK(error.code() == Exit::BadInput);
        return error.what();
    }
    return "accepted";
}

std::string header_refusal(const std::string& json, std::uint64_t data_bytes) {
    return refusal([&] { parse_safetensors_header(json, 8 + json.size() + data_bytes, "x.st"); });
}

bool mentions(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("names are spelled and parsed exactly") {
    CHECK(attempt_name(7) == "a0007");
    CHECK(attempt_name(12345) == "a12345");
    CHECK(parse_attempt_name("a12345") == 12345);
    for (const char* bad :
         {"", "a", "a7", "a007", "a00007", "a0000", "b0007", "a0007.rank0", "a-007", "a000x"}) {
        CHECK_FALSE(parse_attempt_name(bad));
    }
    const CheckpointName name{1000, 7, 0x9f3c2a1b};
    CHECK(checkpoint_directory_name(name) == "s000001000-a0007-9f3c2a1b");
    CHECK(parse_checkpoint_directory_name("s000001000-a0007-9f3c2a1b") == name);
    const CheckpointName large{12345678901, 10001, 1};
    CHECK(parse_checkpoint_directory_name(checkpoint_directory_name(large)) == large);
    for (const char* bad : {"", "s1-a0001-00000000", "s000001000-a0007-9F3C2A1B", "s000001000-a0007-9f3c2a1",
                            "s000001000-a0007", "s-00001000-a0007-9f3c2a1b", "x000001000-a0007-9f3c2a1b",
                            "s000001000-a0007-9f3c2a1b.old"}) {
        CHECK_FALSE(parse_checkpoint_directory_name(bad));
    }
}

TEST_CASE("safetensors: what is written is read back, aligned, with the format key") {
    std::vector<SafetensorsEntry> tensors{{"b", "F32", {2, 3}, 0, 0},
                                          {"empty", "BF16", {0, 4}, 0, 0},
                                          {"scalar \"q\"\n", "I64", {}, 0, 0},
                                          {"a", "U8", {5}, 0, 0}};
    const std::string header = safetensors_header(tensors, {{"step", "7"}});
    CHECK(header.size() % 4096 == 0);
    MemoryFileSystem files;
    files.put("f.st", header + std::string(24 + 8 + 5, 'x'));
    const SafetensorsHeader read = read_safetensors_header(files, "f.st");
    CHECK(read.data_offset == header.size());
    CHECK(read.metadata.at("format") == "pt");
    CHECK(read.metadata.at("step") == "7");
    REQUIRE(read.tensors.size() == 4);
    std::map<std::string, SafetensorsEntry> by_name;
    for (const SafetensorsEntry& entry : read.tensors) by_name[entry.name] = entry;
    for (const SafetensorsEntry& entry : tensors) {
        CAPTURE(entry.name);
        const SafetensorsEntry& found = by_name.at(entry.name);
        CHECK(found.dtype == entry.dtype);
        CHECK(found.shape == entry.shape);
        CHECK(found.begin == entry.begin);
        CHECK(found.end == entry.end);
    }
    // Every other length of the file is refused.
    for (const std::uint64_t bytes :
         {header.size() + 36, std::size_t{4096}, std::size_t{4095}, std::size_t{7}, std::size_t{0}}) {
        files.put("f.st", (header + std::string(64, 'x')).substr(0, bytes));
        CHECK(refusal([&] { read_safetensors_header(files, "f.st"); }) != "accepted");
    }
    files.put("f.st", header + std::string(38, 'x'));
    CHECK(mentions(refusal([&] { read_safetensors_header(files, "f.st"); }), "longer than it says"));
}

TEST_CASE("safetensors: hostile headers are refused, each for its own reason") {
    const std::string good = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
    CHECK(header_refusal(good, 8) == "accepted");
    CHECK(header_refusal(good + "   ", 8) == "accepted");
    CHECK(header_refusal("{}", 0) == "accepted");
    CHECK(mentions(header_refusal(" " + good, 8), "'{'"));
    CHECK(mentions(header_refusal("[]", 0), "'{'"));
    CHECK(mentions(header_refusal(good.substr(0, 20), 8), "not valid JSON"));
    CHECK(mentions(header_refusal(good + "x", 8), "not valid JSON"));
    CHECK(mentions(
        header_refusal(
            R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[0],"data_offsets":[8,8]}})",
            8),
        "twice"));
    CHECK(mentions(header_refusal(R"({"__metadata__":{"k":"1","k":"2"}})", 0), "twice"));
    CHECK(mentions(header_refusal(R"({"__metadata__":{"k":1}})", 0), "number"));
    CHECK(mentions(header_refusal(R"({"__metadata__":{},"__metadata__":{}})", 0), "twice"));
    CHECK(
        mentions(header_refusal(R"({"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8),
                 "twice"));
    CHECK(mentions(header_refusal(R"({"a":{"dtype":"F33","shape":[2],"data_offsets":[0,8]}})", 8), "F33"));
    CHECK(mentions(header_refusal(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8),
                   "does not fit"));
    CHECK(mentions(header_refusal(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8),
                   "does not fit"));
    CHECK(mentions(header_refusal(R"({"a":{"dtype":"F4","shape":[1],"data_offsets":[0,1]}})", 1),
                   "does not fit"));
    CHECK(mentions(
        header_refusal(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", 0),
        "does not fit"));
    CHECK(mentions(
        header_refusal(R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8]}})", 8),
        "impossible shape"));
    CHECK(mentions(header_refusal(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8),
                   "negative"));
    CHECK(mentions(header_refusal(R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", 8),
                   "not whole"));
    CHECK(mentions(header_refusal(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", 8),
                   "two numbers"));
    CHECK(
        mentions(header_refusal(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8,9]}})", 8), "number"));
    CHECK(mentions(header_refusal(R"({"a":{"dtype":"F32","shape":[2]}})", 8), "without data_offsets"));
    CHECK(mentions(header_refusal(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1}})", 8),
                   "unknown field"));
    CHECK(mentions(header_refusal(R"({"a":[]})", 8), "array"));
    CHECK(mentions(header_refusal(R"({"a":null})", 8), "null"));
    CHECK(mentions(
        header_refusal(
            R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})",
            5),
        "hole"));
    CHECK(mentions(
        header_refusal(
            R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
            3),
        "overlap"));
    CHECK(mentions(header_refusal(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", 3), "hole"));
    CHECK(mentions(header_refusal(good, 9), "longer"));
    CHECK(mentions(header_refusal(good, 7), "truncated"));
    CHECK(mentions(header_refusal("{\"\xff\":{}}", 0), "not valid JSON"));
    CHECK(mentions(header_refusal("{\"" + std::string(600, 'n') + "\":{}}", 0), "600 bytes"));
    std::string deep = "{\"a\":";
    for (int level = 0; level < 100000; ++level) deep += '[';
    CHECK(mentions(header_refusal(deep, 0), "array"));

    // A length beyond the file, and one that overflows when 8 is added.
    MemoryFileSystem files;
    files.put("f.st", std::string("\x09\0\0\0\0\0\0\0{}", 10));
    CHECK(mentions(refusal([&] { read_safetensors_header(files, "f.st"); }), "truncated"));
    files.put("f.st", std::string(8, '\xff') + "{}");
    CHECK(mentions(refusal([&] { read_safetensors_header(files, "f.st"); }), "18446744073709551615"));
}

TEST_CASE("COMMIT: exactly what was written, nothing else") {
    const CommitMarker marker{"run-1", 1000, 7, 12345, std::string(64, 'a')};
    const std::string text = commit_text(marker);
    CHECK(text.size() <= 512);
    const CommitMarker read = parse_commit(text, "COMMIT");
    CHECK(commit_text(read) == text);
    for (std::size_t length = 0; length < text.size(); ++length) {
        CAPTURE(length);
        CHECK_THROWS_AS(parse_commit(text.substr(0, length), "COMMIT"), Error);
    }
    for (std::size_t bit = 0; bit < text.size() * 8; ++bit) {
        std::string damaged = text;
        damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
        CAPTURE(bit);
        CHECK_THROWS_AS(parse_commit(damaged, "COMMIT"), Error);
    }
    CHECK_THROWS_AS(parse_commit(text + "\n", "COMMIT"), Error);
    CHECK(mentions(refusal([&] { parse_commit("", "COMMIT"); }), "empty"));
}

TEST_CASE("run.json: created once; torn by a crash it is created again; foreign formats are refused") {
    MemoryFileSystem files;
    ManualClock clock;
    const RunLayout layout("run");
    CHECK_FALSE(read_run_identity(files, layout));
    const RunIdentity made = create_run(files, clock, layout, "spec-hash");
    CHECK(made.run_id.size() == 36);
    CHECK(made.run_id != make_run_id());
    CHECK(read_run_identity(files, layout)->run_id == made.run_id);
    try {
        create_run(files, clock, layout, "spec-hash");
        FAIL("a second run in one directory");
    } catch (const Error& error) {
        CHECK(error.code() == Exit::Usage);
        CHECK(mentions(error.what(), "--resume"));
    }
    const std::string whole = *files.contents("run/run.json");
    for (const std::size_t length : {std::size_t{0}, whole.size() / 2, whole.size() - 1}) {
        files.put("run/run.json", whole.substr(0, length));
        CHECK_FALSE(read_run_identity(files, layout));
        CHECK_NOTHROW(create_run(files, clock, layout, "spec-hash"));
        CHECK(read_run_identity(files, layout));
    }
    files.put("run/run.json", "{\"format\": \"trainctl-run\", \"version\": 2}\n");
    CHECK(mentions(refusal([&] { read_run_identity(files, layout); }), "newer trainctl"));
    files.put("run/run.json", R"({"format": "trainctl-run", "version": 1, "run_id": "a", "run_id": "b"})"
                              "\n");
    CHECK(mentions(refusal([&] { read_run_identity(files, layout); }), "twice"));
}

TEST_CASE("journal: every crash keeps all appended records, a torn last line is tolerated, damage is told") {
    ManualClock clock;
    const RunLayout layout("run");
    const auto write = [&](MemoryFileSystem& files, int& appended) {
        files.make_directories("run");
        files.sync_directory("run");
        files.sync_directory("");
        JournalWriter writer(files, clock, layout, 3);
        for (int step = 1; step <= 4; ++step) {
            JournalRecord record;
            record.event = step % 2 == 0 ? JournalEvent::Commit : JournalEvent::Begin;
            record.step = step;
            record.directory = "d\"" + std::to_string(step);
            record.text = std::string(static_cast<std::size_t>(step) * 3000, 'x');
            writer.append(record);
            appended = step;
        }
    };
    MemoryFileSystem clean;
    int all = 0;
    write(clean, all);
    const Journal whole = read_journal(clean, layout);
    REQUIRE(whole.records.size() == 4);
    CHECK(whole.shows_progress());
    CHECK(whole.records[3].directory == "d\"4");
    CHECK(whole.records[3].attempt == 3);
    for (std::uint64_t k = 0; k < clean.mutations(); ++k) {
        MemoryFileSystem files;
        files.crash_at(k);
        int appended = 0;
        try {
            write(files, appended);
        } catch (const Crash&) {
        }
        for_each_crash_state(files, 30, [&](MemoryFileSystem& disk, const std::string& what) {
            INFO(what);
            const Journal found = read_journal(disk, layout);
            CHECK(found.problems.empty());
            CHECK(static_cast<int>(found.records.size()) >= appended);
        });
    }
    const std::string path = "run/journal/a0003.log";
    const std::string text = *clean.contents(path);
    clean.put(path, text.substr(0, text.size() - 5));
    CHECK(read_journal(clean, layout).records.size() == 3);
    CHECK(read_journal(clean, layout).problems.empty());
    clean.put(path, text);
    clean.flip_bit(path, 8 * 40);  // in the first line
    const Journal damaged = read_journal(clean, layout);
    CHECK(damaged.records.size() == 3);
    REQUIRE(damaged.problems.size() == 1);
    CHECK(mentions(damaged.problems[0], "a0003.log line 1"));
    CHECK(damaged.shows_progress());  // what cannot be read may have been a commit
}

TEST_CASE("journal: a segment that somebody removed, moved or cut is written again under another name") {
    for (const int harm : {0, 1, 2, 3}) {
        INFO(harm);
        MemoryFileSystem files;
        ManualClock clock;
        const RunLayout layout("run");
        JournalWriter writer(files, clock, layout, 1);
        const auto append = [&](std::int64_t step) {
            JournalRecord record;
            record.event = JournalEvent::Commit;
            record.step = step;
            record.directory = "d";
            writer.append(record);
        };
        append(1);
        append(2);
        const std::string path = "run/journal/a0001.log";
        if (harm == 0) files.erase(path);
        if (harm == 1) files.erase("run");
        if (harm == 2) files.rename(path, "run/elsewhere");
        if (harm == 3) files.truncate(path, 0);
        append(3);
        append(4);
        const Journal found = read_journal(*files.crash_state(0), layout);  // durable
        CHECK(found.problems.empty());
        REQUIRE(found.records.size() == 4);
        for (std::int64_t step = 1; step <= 4; ++step)
            CHECK(found.records[static_cast<std::size_t>(step - 1)].step == step);
        CHECK(files.contents("run/journal/a0001-1.log").has_value());
        CHECK_FALSE(files.contents("run/journal/a0001-2.log").has_value());
    }
}

TEST_CASE("journal: after a failed write or sync everything is written to a new segment, once each") {
    ManualClock clock;
    const RunLayout layout("run");
    for (const FileOp op : {FileOp::Write, FileOp::Sync}) {
        for (std::uint64_t after = 1; after < 6; ++after) {
            MemoryFileSystem files;
            files.make_directories("run");
            files.sync_directory("");
            JournalWriter writer(files, clock, layout, 1);
            files.add_fault({5 /* EIO */, op, "journal", after, 1, FaultEffect::None});
            for (int step = 0; step < 6; ++step) {
                JournalRecord record;
                record.event = JournalEvent::Commit;
                record.step = step;
                writer.append(record);
            }
            const auto disk = files.crash_state(0);  // only what is durable
            const Journal found = read_journal(*disk, layout);
            CAPTURE(after);
            REQUIRE(found.records.size() == 6);
            for (int step = 0; step < 6; ++step)
                CHECK(found.records[static_cast<std::size_t>(step)].step == step);
        }
    }
    MemoryFileSystem files;
    files.make_directories("run");
    JournalWriter writer(files, clock, layout, 1);
    files.add_fault({28, FileOp::Write, "journal", 0, UINT64_MAX, FaultEffect::None});
    CHECK_THROWS_AS(writer.append({}), Error);
    files.clear_faults();
    CHECK_NOTHROW(writer.append({}));
    CHECK(read_journal(files, layout).records.size() == 2);
}

TEST_CASE("write_durably leaves the old or the new text whole, and never trusts a second sync") {
    for (std::uint64_t k = 0;; ++k) {
        MemoryFileSystem files;
        files.make_directories("d");
        files.sync_directory("");
        write_durably(files, "d", "f", "old");
        const std::uint64_t before = files.mutations();
        files.crash_at(before + k);
        bool done = true;
        try {
            write_durably(files, "d", "f", std::string(9000, 'n'));
        } catch (const Crash&) {
            done = false;
        }
        for_each_crash_state(files, 100, [&](MemoryFileSystem& disk, const std::string& what) {
            INFO(what);
            const auto found = disk.contents("d/f");
            REQUIRE(found);
            CHECK((*found == std::string(9000, 'n') || (!done && *found == "old")));
        });
        if (done) break;
    }
    for (const FileOp op : {FileOp::Create, FileOp::Write, FileOp::Sync, FileOp::Close, FileOp::Rename,
                            FileOp::SyncDirectory}) {
        for (const FaultEffect effect : {FaultEffect::None, FaultEffect::Applied}) {
            MemoryFileSystem files;
            files.make_directories("d");
            files.sync_directory("");
            files.add_fault({5, op, "d", 0, 2, effect});
            write_durably(files, "d", "f", "text");
            CHECK(files.crash_state(0)->contents("d/f") == std::string("text"));
            files.add_fault({5, op, "d", 0, 3, effect});
            CHECK_THROWS_AS(write_durably(files, "d", "f", "later"), Error);
        }
    }
}

TEST_CASE("COMMIT is written where there is none, and taken for ours only if it says the same") {
    const CommitMarker marker{"run-1", 1000, 7, 12345, std::string(64, 'a')};
    CommitMarker other = marker;
    other.step = 2000;
    for (const FileOp op : {FileOp::Create, FileOp::Write, FileOp::Sync, FileOp::Close, FileOp::Rename,
                            FileOp::SyncDirectory}) {
        for (const FaultEffect effect : {FaultEffect::None, FaultEffect::Applied}) {
            for (const bool removable : {true, false}) {
                CAPTURE(static_cast<int>(op), static_cast<int>(effect), removable);
                MemoryFileSystem files;
                files.make_directories("r/d");
                files.sync_directory("");
                files.sync_directory("r");
                files.add_fault({5, op, "d", 0, 1, effect});
                if (!removable) files.add_fault({5, FileOp::RemoveFile, "d/COMMIT", 0, 2, FaultEffect::None});
                write_commit(files, "r", "r/d", marker);
                CHECK(files.crash_state(0)->contents("r/d/COMMIT") == commit_text(marker));
                CHECK_THROWS_AS(write_commit(files, "r", "r/d", other), Error);
                CHECK(files.contents("r/d/COMMIT") == commit_text(marker));
            }
        }
    }
}

TEST_CASE("the record of an attempt holds what is needed to repeat it") {
    MemoryFileSystem files;
    const RunLayout layout("run");
    files.make_directories("run");
    RunRecord record(files, layout, 2);
    record.set_spec("[job]\nname = \"x\"\n");
    record.set_arguments({"trainctl", "train", "a \"b\".toml"});
    record.set_versions({{"trainctl", "0.1"}, {"oneDNN", "2.6"}});
    record.set_hosts({"n1", "n1", "n2"});
    record.set_data_fingerprint("abc");
    CHECK(*files.contents("run/record/a0002/argv.json") ==
          "[\"trainctl\", \"train\", \"a \\\"b\\\".toml\"]\n");
    CHECK(*files.contents("run/record/a0002/hosts.txt") == "n1\nn1\nn2\n");
    CHECK(mentions(*files.contents("run/record/a0002/versions.json"), "\"oneDNN\": \"2.6\""));
    CHECK(*files.contents("run/record/a0002/spec.toml") == "[job]\nname = \"x\"\n");
    CHECK(*files.contents("run/record/a0002/data_fingerprint.txt") == "abc\n");
}
