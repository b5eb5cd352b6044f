// Faults, capacity and damage. That it keeps the FileSystem contract is tested beside the real one
// (tests/base).
#include "support/memory_file_system.h"

#include <cerrno>
#include <functional>
#include <limits>
#include <thread>

#include "support/catch.h"
#include "trainctl/base/error.h"

using namespace trainctl;
using namespace trainctl::test;

namespace {

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string error_of(const std::function<void()>& action) {
    try {
        action();
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

bool mentions(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("every operation is recorded in order; only changes are counted") {
    MemoryFileSystem files;
    files.make_directories("a/b");
    files.make_directories("a/b");
    write_text_atomically(files, "a/b/f", "hello");
    CHECK(read_text(files, "a/b/f") == "hello");
    files.remove_file("none");
    std::vector<std::string> seen;
    for (const Operation& operation : files.operations()) {
        if (operation.mutating) seen.push_back(to_string(operation));
    }
    CHECK(seen == std::vector<std::string>{"mkdir a", "mkdir a/b", "create a/b/.f.part",
                                           "write a/b/.f.part 5", "sync a/b/.f.part",
                                           "rename a/b/.f.part -> a/b/f", "syncdir a/b"});
    CHECK(files.mutations() == seen.size());
    CHECK(files.operations().size() > seen.size());
}

TEST_CASE("faults hit the chosen operations, the chosen number of times") {
    MemoryFileSystem files;
    files.put("d/f", "old");
    files.add_fault({ENOSPC, FileOp::Write, "x", 1, 2, FaultEffect::None});
    const auto file = files.open("x", Open::CreateNew);
    CHECK(error_of([&] { file->write(bytes_of("a")); }).empty());
    CHECK(mentions(error_of([&] { file->write(bytes_of("b")); }), "ENOSPC"));
    CHECK(mentions(error_of([&] { file->write(bytes_of("c")); }), "ENOSPC"));
    CHECK(error_of([&] { file->write(bytes_of("d")); }).empty());
    CHECK(files.contents("x") == "ad");

    files.add_fault({EIO, FileOp::Rename, "", 0, 1, FaultEffect::Applied});
    CHECK(mentions(error_of([&] { files.rename("x", "y"); }), "EIO"));
    CHECK(files.contents("y") == "ad");  // reported as failed, yet done

    files.add_fault(
        {EACCES, std::nullopt, "d/", 0, std::numeric_limits<std::uint64_t>::max(), FaultEffect::None});
    for (int i = 0; i < 5; ++i) CHECK(mentions(error_of([&] { files.remove_file("d/f"); }), "EACCES"));
    CHECK(error_of([&] { files.open("d/f", Open::Read); }).empty());  // reading is not a mutating operation
    files.clear_faults();
    CHECK(error_of([&] { files.remove_file("d/f"); }).empty());
}

TEST_CASE("a failed sync loses the data for good, whatever a second sync says") {
    MemoryFileSystem files;
    const auto file = files.open("f", Open::CreateNew);
    files.sync_directory("/");
    file->write(bytes_of("data"));
    files.add_fault({EIO, FileOp::Sync, "", 0, 1, FaultEffect::None});
    CHECK(mentions(error_of([&] { file->sync(); }), "EIO"));
    CHECK(error_of([&] { file->sync(); }).empty());
    CHECK(read_text(files, "f") == "data");
    CHECK(files.crash_state(0)->contents("f") == "");
}

TEST_CASE("a failed close of unsynced contents loses them; of synced contents it does not") {
    for (const bool synced : {false, true}) {
        MemoryFileSystem files;
        const auto file = files.open("f", Open::CreateNew);
        file->write(bytes_of("data"));
        if (synced) file->sync();
        files.sync_directory("/");
        files.add_fault({EIO, FileOp::Close, "", 0, 1, FaultEffect::None});
        CHECK(mentions(error_of([&] { file->close(); }), "EIO"));
        files.open("f", Open::Append)->sync();
        CHECK(files.crash_state(0)->contents("f") == (synced ? "data" : ""));
    }
}

TEST_CASE("capacity: what fits is stored, then ENOSPC; freeing helps") {
    MemoryFileSystem files;
    files.put("old", std::string(60, 'o'));
    files.set_capacity(100);
    const auto file = files.open("new", Open::CreateNew);
    CHECK(mentions(error_of([&] { file->write(bytes_of(std::string(50, 'n'))); }), "ENOSPC"));
    CHECK(files.contents("new")->size() == 40);
    CHECK(files.space("/").free_bytes == 0);
    files.remove_file("old");
    CHECK(files.space("/").free_bytes == 60);
    CHECK(error_of([&] { file->write(bytes_of(std::string(60, 'n'))); }).empty());
    CHECK(files.contents("new")->size() == 100);
}

TEST_CASE("a read-only mount refuses every change and allows reading") {
    MemoryFileSystem files;
    files.put("d/f", "text");
    files.set_mount(Mount::ReadOnly);
    CHECK(mentions(error_of([&] { files.open("d/g", Open::CreateNew); }), "EROFS"));
    CHECK(mentions(error_of([&] { files.rename("d/f", "d/g"); }), "EROFS"));
    CHECK(mentions(error_of([&] { files.remove_file("d/f"); }), "EROFS"));
    CHECK(mentions(error_of([&] { files.make_directories("d/e"); }), "EROFS"));
    CHECK(error_of([&] { files.make_directories("d"); }).empty());
    CHECK(read_text(files, "d/f") == "text");
}

TEST_CASE("damage") {
    MemoryFileSystem files;
    files.put("d/f", "abc");
    files.flip_bit("d/f", 8);
    CHECK(files.contents("d/f") == "acc");
    files.truncate("d/f", 2);
    CHECK(files.contents("d/f") == "ac");
    CHECK(files.crash_state(0)->contents("d/f") == "ac");
    CHECK(files.all_files() == std::vector<std::string>{"d/f"});
    files.erase("d/f");
    CHECK(files.all_files().empty());
    CHECK(files.crash_state(0)->all_files().empty());
}

TEST_CASE("threads may work on it at once", "[threads]") {
    MemoryFileSystem files;
    std::vector<std::thread> workers;
    for (int t = 0; t < 4; ++t) {
        workers.emplace_back([&files, t] {
            for (int i = 0; i < 50; ++i) {
                write_text_atomically(files, "f" + std::to_string(t), std::to_string(i));
            }
        });
    }
    for (std::thread& worker : workers) worker.join();
    CHECK(files.all_files() == std::vector<std::string>{"f0", "f1", "f2", "f3"});
    for (const std::string& name : files.all_files()) CHECK(files.crash_state(0)->contents(name) == "49");
}
