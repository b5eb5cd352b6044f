// The same expectations are run against the real file system and the one in memory, so that crash tests on
// the latter mean something.
#include "trainctl/base/file_system.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <functional>

#include "support/catch.h"
#include "support/memory_file_system.h"
#include "support/temporary_directory.h"
#include "trainctl/base/error.h"

using namespace trainctl;

namespace {

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

void write_file(FileSystem& files, const std::string& path, const std::string& text,
                Open mode = Open::Truncate) {
    const auto file = files.open(path, mode);
    file->write(bytes_of(text));
    file->sync();
    file->close();
}

Exit code_of(const std::function<void()>& action) {
    try {
        action();
    } catch (const Error& error) {
        UNSCOPED_INFO(error.what());
        return error.code();
    }
    return Exit::Ok;
}

void check_file_system(FileSystem& files, const std::string& root) {
    const auto in = [&](const std::string& name) { return join_path(root, name); };

    SECTION("open modes") {
        write_file(files, in("a"), "hello", Open::CreateNew);
        CHECK(read_text(files, in("a")) == "hello");
        CHECK(code_of([&] { files.open(in("a"), Open::CreateNew); }) == Exit::Resource);
        write_file(files, in("a"), "xy", Open::Truncate);
        CHECK(read_text(files, in("a")) == "xy");
        write_file(files, in("a"), "z", Open::Append);
        write_file(files, in("b"), "new", Open::Append);
        CHECK(read_text(files, in("a")) == "xyz");
        CHECK(read_text(files, in("b")) == "new");
        CHECK(code_of([&] { files.open(in("missing"), Open::Read); }) == Exit::BadInput);
        CHECK(code_of([&] { files.open(in("missing/a"), Open::CreateNew); }) == Exit::Resource);
        files.make_directories(in("d"));
        CHECK(code_of([&] { files.open(in("d"), Open::Read); }) == Exit::BadInput);
        CHECK(code_of([&] { files.open(in("d"), Open::Truncate); }) == Exit::Resource);
    }
    SECTION("ranges") {
        write_file(files, in("a"), "0123456789");
        const auto file = files.open(in("a"), Open::Read);
        CHECK(file->size() == 10);
        std::string piece(4, ' ');
        file->read_at(3, std::as_writable_bytes(std::span(piece)));
        CHECK(piece == "3456");
        CHECK(code_of([&] { file->read_at(7, std::as_writable_bytes(std::span(piece))); }) == Exit::BadInput);
        CHECK(file->read_some_at(8, std::as_writable_bytes(std::span(piece))) == 2);
        CHECK(piece.substr(0, 2) == "89");
        CHECK(file->read_some_at(10, std::as_writable_bytes(std::span(piece))) == 0);
        CHECK(file->read_some_at(1000, std::as_writable_bytes(std::span(piece))) == 0);
        CHECK(code_of([&] { file->write(bytes_of("x")); }) == Exit::Resource);  // opened for reading
        const auto writer = files.open(in("b"), Open::CreateNew);
        for (const char* word : {"one ", "two ", "three"}) writer->write(bytes_of(word));
        CHECK(writer->size() == 13);
        writer->close();
        CHECK_THROWS_AS(writer->close(), Error);
        CHECK(read_text(files, in("b")) == "one two three");
    }
    SECTION("directories and status") {
        files.make_directories(in("x/y//z"));
        files.make_directories(in("x/y/z"));
        write_file(files, in("x/f"), "abc");
        CHECK(files.list(in("x")) == std::vector<std::string>{"f", "y"});
        REQUIRE(files.status(in("x/y")));
        CHECK(files.status(in("x/y"))->directory);
        REQUIRE(files.status(in("x/f")));
        CHECK(files.status(in("x/f"))->size == 3);
        CHECK_FALSE(files.status(in("x/f"))->directory);
        CHECK_FALSE(files.status(in("none")));
        CHECK_FALSE(files.status(in("none/deeper")));
        CHECK_FALSE(files.status(in("x/f/below a file")));
        CHECK(code_of([&] { files.list(in("none")); }) == Exit::BadInput);
        CHECK(code_of([&] { files.make_directories(in("x/f")); }) == Exit::Resource);
        CHECK(code_of([&] { files.make_directories(in("x/f/g")); }) == Exit::Resource);
        CHECK_NOTHROW(files.require_creatable(in("x/y")));
        CHECK_NOTHROW(files.require_creatable(in("x/new/deeper")));
        CHECK(code_of([&] { files.require_creatable(in("x/f")); }) == Exit::Usage);
        CHECK(code_of([&] { files.require_creatable(in("x/f/g")); }) == Exit::Usage);
        CHECK_FALSE(files.status(in("x/new")));
        CHECK_NOTHROW(files.sync_directory(in("x")));
        CHECK(code_of([&] { files.sync_directory(in("none")); }) == Exit::Resource);
        CHECK(files.space(root).free_bytes > 0);
        CHECK(files.space(root).total_bytes >= files.space(root).free_bytes);
        CHECK(code_of([&] { files.space(in("none")); }) == Exit::BadInput);
    }
    SECTION("rename and remove") {
        write_file(files, in("a"), "A");
        write_file(files, in("b"), "B");
        files.rename(in("a"), in("b"));
        CHECK(read_text(files, in("b")) == "A");
        CHECK_FALSE(files.status(in("a")));
        CHECK(code_of([&] { files.rename(in("a"), in("c")); }) == Exit::Resource);
        CHECK(code_of([&] { files.rename(in("b"), in("none/b")); }) == Exit::Resource);
        files.make_directories(in("d/e"));
        CHECK(code_of([&] { files.remove_directory(in("d")); }) == Exit::Resource);
        CHECK(code_of([&] { files.remove_file(in("d")); }) == Exit::Resource);
        CHECK(code_of([&] { files.remove_directory(in("b")); }) == Exit::Resource);
        CHECK(code_of([&] { files.rename(in("b"), in("d")); }) == Exit::Resource);
        files.rename(in("d"), in("g"));
        CHECK(files.status(in("g/e")));
        files.remove_directory(in("g/e"));
        files.remove_directory(in("g"));
        files.remove_file(in("b"));
        files.remove_file(in("b"));
        files.remove_file(in("none/b"));
        files.remove_directory(in("g"));
        CHECK(files.list(root).empty());
    }
    SECTION("an open file outlives its name") {
        write_file(files, in("a"), "kept");
        const auto file = files.open(in("a"), Open::Read);
        files.remove_file(in("a"));
        std::string text(4, ' ');
        file->read_at(0, std::as_writable_bytes(std::span(text)));
        CHECK(text == "kept");
    }
    SECTION("published files") {
        const auto bytes = [](std::string_view text) { return std::as_bytes(std::span(text)); };
        const auto publish = [&](std::string_view text, Existing existing) {
            const auto file = files.publish(in("p"), existing);
            file->write(bytes(text.substr(0, 2)));
            file->write(bytes(text.substr(2)));
            CHECK(file->size() == text.size());
            file->close();
        };
        files.publish(in("p"), Existing::Refuse)->write(bytes("never closed"));
        CHECK(files.list(root).empty());
        publish("first", Existing::Refuse);
        CHECK(code_of([&] { publish("second", Existing::Refuse); }) == Exit::Resource);
        CHECK(read_text(files, in("p")) == "first");
        publish("third", Existing::Replace);
        CHECK(read_text(files, in("p")) == "third");
        CHECK(files.list(root) == std::vector<std::string>{"p"});
        // Another one was faster: neither is it overwritten, nor is anything of ours left.
        const auto late = files.publish(in("q"), Existing::Refuse);
        write_file(files, in("q"), "theirs");
        CHECK(code_of([&] { late->close(); }) == Exit::Resource);
        CHECK(read_text(files, in("q")) == "theirs");
        CHECK(code_of([&] { late->write(bytes("more")); }) == Exit::Internal);
        CHECK(files.list(root) == std::vector<std::string>{"p", "q"});
    }
    SECTION("whole small files") {
        write_text_atomically(files, in("s"), "first");
        write_text_atomically(files, in("s"), "second");
        CHECK(files.list(root) == std::vector<std::string>{"s"});
        CHECK(read_text(files, in("s"), 6) == "second");
        CHECK(code_of([&] { read_text(files, in("s"), 5); }) == Exit::BadInput);
        write_text_atomically(files, in("s"), "");
        CHECK(read_text(files, in("s")).empty());
        CHECK(code_of([&] { write_text_atomically(files, in("none/s"), "x"); }) == Exit::Resource);
        files.make_directories(in("s2"));
        CHECK(code_of([&] { write_text_atomically(files, in("s2"), "x"); }) == Exit::Resource);
        CHECK(files.list(root) == std::vector<std::string>{"s", "s2"});  // no temporary left behind
    }
}

}  // namespace

TEST_CASE("the real file system keeps the contract") {
    const auto files = make_posix_file_system();
    const test::TemporaryDirectory directory;
    check_file_system(*files, directory.path());
}

TEST_CASE("the file system in memory keeps the same contract") {
    test::MemoryFileSystem files;
    files.make_directories("/root");
    check_file_system(files, "/root");
}

TEST_CASE("files of /proc, which report size 0, are read whole") {
    const auto files = make_posix_file_system();
    CHECK(read_text(*files, "/proc/self/status").find("Name:") == 0);
    CHECK(code_of([&] { read_text(*files, "/proc/self/status", 10); }) == Exit::BadInput);
}

TEST_CASE("pipes and devices are not read, and nobody waits for them") {
    const test::TemporaryDirectory directory;
    const auto files = make_posix_file_system();
    const std::string pipe = directory / "pipe";
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    for (const std::string& path : {pipe, std::string("/dev/zero"), std::string("/dev/null")}) {
        try {
            files->open(path, Open::Read);
            FAIL(path << " was opened");
        } catch (const Error& error) {
            CHECK(error.code() == Exit::BadInput);
            CHECK(std::string(error.what()).find(path) != std::string::npos);
            CHECK(std::string(error.what()).find("regular file") != std::string::npos);
        }
    }
}

TEST_CASE("a full device is a resource error that names it") {
    const auto files = make_posix_file_system();
    const auto file = files->open("/dev/full", Open::Append);
    try {
        file->write(bytes_of("x"));
        FAIL("the write succeeded");
    } catch (const Error& error) {
        CHECK(error.code() == Exit::Resource);
        CHECK(std::string(error.what()).find("/dev/full") != std::string::npos);
        CHECK(std::string(error.what()).find("ENOSPC") != std::string::npos);
    }
}

TEST_CASE("sparse files beyond 4 GiB are read at 64-bit offsets") {
    const test::TemporaryDirectory directory;
    const auto files = make_posix_file_system();
    const std::string path = directory / "big";
    write_file(*files, path, "");
    const std::uint64_t size = std::uint64_t{5} << 30U;
    REQUIRE(::truncate(path.c_str(), static_cast<off_t>(size)) == 0);
    write_file(*files, path, "end", Open::Append);
    const auto file = files->open(path, Open::Read);
    CHECK(file->size() == size + 3);
    std::string text(3, ' ');
    file->read_at(size, std::as_writable_bytes(std::span(text)));
    CHECK(text == "end");
}

TEST_CASE("what the kernel would refuse to create is known before") {
    const test::TemporaryDirectory directory;
    const auto files = make_posix_file_system();
    // In a directory that is there, and below one that is not.
    for (const char* parent : {"", "new/"})
        CHECK(code_of([&] { files->require_creatable(directory / (parent + std::string(300, 'n'))); }) ==
              Exit::Usage);
    std::string deep = directory.path();
    while (deep.size() < 5000) deep += "/deeper";
    CHECK(code_of([&] { files->require_creatable(deep); }) == Exit::Usage);

    // root may write everywhere, so it looks as somebody else.
    const std::string closed = directory / "closed";
    files->make_directories(closed);
    REQUIRE(::chmod(directory.path().c_str(), 0755) == 0);
    REQUIRE(::chmod(closed.c_str(), 0555) == 0);
    const bool root = ::geteuid() == 0;
    if (root) REQUIRE(::seteuid(65534) == 0);
    const Exit code = code_of([&] { files->require_creatable(closed + "/run"); });
    if (root) REQUIRE(::seteuid(0) == 0);
    CHECK(code == Exit::Resource);
}

TEST_CASE("paths") {
    CHECK(join_path("a/b", "c") == "a/b/c");
    CHECK(join_path("a/", "c") == "a/c");
    CHECK(join_path("a", "/c") == "/c");
    CHECK(join_path("", "c") == "c");
    CHECK(join_path("a", "") == "a");
    CHECK(parent_path("a/b/c") == "a/b");
    CHECK(parent_path("a/b/") == "a");
    CHECK(parent_path("c") == ".");
    CHECK(parent_path("/c") == "/");
    CHECK(parent_path("/") == "/");
    CHECK(parent_path("a//b") == "a");
}

TEST_CASE(
    "a published file is there whole or not at all, whichever operation fails or the machine stops at") {
    using test::Fault;
    using test::FaultEffect;
    using test::MemoryFileSystem;
    const std::string old = "old contents";
    const std::string text = "what is to be published";
    for (const Existing existing : {Existing::Refuse, Existing::Replace}) {
        const bool replaces = existing == Existing::Replace;
        const auto prepare = [&](MemoryFileSystem& files) {
            files.put("d/other", "");
            files.put("d/.f.part", "of a writer that crashed");
            if (replaces) files.put("d/f", old);
        };
        const auto publish = [&](FileSystem& files) {
            const auto file = files.publish("d/f", existing);
            file->write(std::as_bytes(std::span(text)));
            file->close();
        };
        const auto holds = [&](const MemoryFileSystem& disk, bool published) {
            const auto found = disk.contents("d/f");
            if (published) return found == text;
            return replaces ? found == old || found == text : !found;
        };
        MemoryFileSystem clean;
        prepare(clean);
        publish(clean);
        CHECK(holds(*clean.crash_state(0), true));  // durable on return
        REQUIRE(clean.mutations() == 6);            // remove, create, write, sync, rename, syncdir

        for (std::uint64_t k = 0; k < clean.mutations(); ++k) {
            for (const FaultEffect effect : {FaultEffect::None, FaultEffect::Applied}) {
                INFO("fault at " << k);
                MemoryFileSystem files;
                prepare(files);
                files.add_fault({EIO, std::nullopt, "", k, 1, effect});
                CHECK_THROWS_AS(publish(files), Error);
                CHECK(holds(files, false));
                publish(files);
                CHECK(holds(*files.crash_state(0), true));
            }
            MemoryFileSystem files;
            prepare(files);
            files.crash_at(k);
            CHECK_THROWS_AS(publish(files), test::Crash);
            for_each_crash_state(files, 1000, [&](MemoryFileSystem& disk, const std::string& what) {
                INFO("crash at " << k << ", " << what);
                const auto found = disk.contents("d/f");
                CHECK((found == text || found == (replaces ? std::optional(old) : std::nullopt)));
            });
        }
        MemoryFileSystem files;
        prepare(files);
        files.add_fault({EIO, test::FileOp::Close, "f", 0, 1, FaultEffect::None});
        CHECK_THROWS_AS(publish(files), Error);
        CHECK(holds(files, false));
    }
}

TEST_CASE("a text whose file goes stale while it is read is read again through a fresh open") {
    test::MemoryFileSystem files;
    files.put("lease", "whose");
    files.add_fault({ESTALE, test::FileOp::Read, "lease", 0, 1, test::FaultEffect::None});
    CHECK(read_text(files, "lease") == "whose");
    files.add_fault({ESTALE, test::FileOp::Read, "lease", 0, UINT64_MAX, test::FaultEffect::None});
    CHECK_THROWS_AS(read_text(files, "lease"), Error);
    // Other failures have been tried as often as is good where they come from.
    files.clear_faults();
    files.add_fault({EIO, test::FileOp::Read, "lease", 0, 1, test::FaultEffect::None});
    CHECK_THROWS_AS(read_text(files, "lease"), Error);
    CHECK(read_text(files, "lease") == "whose");
}
