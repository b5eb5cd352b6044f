// The states after a power cut: what a careful protocol may rely on always holds, and what a careless one
// relies on is violated by at least one state. Without the second half the first would mean nothing.
#include <functional>
#include <set>

#include "support/catch.h"
#include "support/memory_file_system.h"
#include "trainctl/base/error.h"

using namespace trainctl;
using namespace trainctl::test;

namespace {

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

// Runs `protocol` on a disk that holds "f" = "old", crashing at every operation; collects every content that
// "f" can have afterwards ("<none>" if it is missing).
std::set<std::string> outcomes(const std::function<void(FileSystem&)>& protocol) {
    MemoryFileSystem clean;
    clean.put("f", "old");
    protocol(clean);
    std::set<std::string> found;
    for (std::uint64_t k = 0; k <= clean.mutations(); ++k) {
        MemoryFileSystem files;
        files.put("f", "old");
        files.crash_at(k);
        try {
            protocol(files);
        } catch (const Crash&) {
        }
        REQUIRE(files.crashed() == (k < clean.mutations()));
        for_each_crash_state(files, 500, [&](MemoryFileSystem& disk, const std::string& /*what*/) {
            found.insert(disk.contents("f").value_or("<none>"));
        });
    }
    return found;
}

void replace(FileSystem& files, bool sync_file) {
    const auto file = files.open("f.tmp", Open::Truncate);
    file->write(bytes_of("new"));
    if (sync_file) file->sync();
    file->close();
    files.rename("f.tmp", "f");
    files.sync_directory("/");
}

}  // namespace

TEST_CASE("atomic replacement leaves the old or the new contents, nothing else") {
    CHECK(outcomes([](FileSystem& files) { write_text_atomically(files, "f", "new"); }) ==
          std::set<std::string>{"old", "new"});
    CHECK(outcomes([](FileSystem& files) { replace(files, true); }) == std::set<std::string>{"old", "new"});
}

TEST_CASE("careless replacements are caught") {
    const std::string zeros(3, '\0');
    CHECK(outcomes([](FileSystem& files) { replace(files, false); }) ==
          std::set<std::string>{"", "old", "new", zeros});
    const auto in_place = outcomes([](FileSystem& files) {
        const auto file = files.open("f", Open::Truncate);
        file->write(bytes_of("new"));
        file->sync();
        file->close();
    });
    CHECK(in_place.count("") == 1);
    CHECK(in_place.count("old") == 1);
    const auto removed_first = outcomes([](FileSystem& files) {
        files.remove_file("f");
        write_text_atomically(files, "f", "new");
    });
    CHECK(removed_first.count("<none>") == 1);
}

TEST_CASE("names are durable only after their directory was synced, mkdir included") {
    MemoryFileSystem files;
    files.make_directories("a/b");
    const auto file = files.open("a/b/f", Open::CreateNew);
    file->write(bytes_of("data"));
    file->sync();
    files.sync_directory("a/b");
    CHECK(files.crash_state(0)->all_files().empty());  // the file is durable, the way to it is not
    files.sync_directory("a");
    CHECK(files.crash_state(0)->all_files().empty());
    files.sync_directory("/");
    CHECK(files.crash_state(0)->contents("a/b/f") == "data");
    CHECK(files.crash_state_count() == 1);
}

TEST_CASE("a rename between directories is whole in every state and durable after both are synced") {
    MemoryFileSystem files;
    files.put("a/f", "data");
    files.put("b/other", "");
    files.rename("a/f", "b/f");
    const auto places = [](MemoryFileSystem& disk) {
        return std::make_pair(disk.contents("a/f").has_value(), disk.contents("b/f").has_value());
    };
    std::set<std::pair<bool, bool>> seen;
    for_each_crash_state(files, 10,
                         [&](MemoryFileSystem& disk, const std::string&) { seen.insert(places(disk)); });
    CHECK(seen == std::set<std::pair<bool, bool>>{{true, false}, {false, true}});
    files.sync_directory("b");
    CHECK(files.crash_state_count() == 2);
    files.sync_directory("a");
    CHECK(files.crash_state_count() == 1);
    CHECK(files.crash_state(0)->contents("b/f") == "data");
}

TEST_CASE("an unsynced removal may come back; a later change may overtake an earlier one") {
    MemoryFileSystem files;
    files.put("commit", "1");
    files.put("payload", "2");
    files.remove_file("commit");
    files.remove_file("payload");
    std::set<std::vector<std::string>> seen;
    for_each_crash_state(files, 10,
                         [&](MemoryFileSystem& disk, const std::string&) { seen.insert(disk.all_files()); });
    CHECK(seen.size() == 4);  // including "commit" without "payload": why a deletion syncs in between
    CHECK(seen.count({"commit"}) == 1);
}

TEST_CASE("unsynced contents may be dropped, kept, zeroed or torn, page by page") {
    MemoryFileSystem files;
    const std::string first(8192, 'a');
    const std::string second(8192, 'b');
    const auto file = files.open("f", Open::CreateNew);
    file->write(bytes_of(first));
    file->sync();
    files.sync_directory("/");
    file->write(bytes_of(second));
    REQUIRE(files.crash_state_count() == 4);
    CHECK(files.crash_state(0)->contents("f") == first);
    CHECK(files.crash_state(1)->contents("f") == first + second);
    CHECK(files.crash_state(2)->contents("f") == first + std::string(8192, '\0'));

    std::set<std::string> torn;
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
        const std::string found = *files.random_crash_state(seed)->contents("f");
        torn.insert(found);
        REQUIRE(found.size() % 4096 == 0);
        for (std::size_t at = 8192; at < found.size(); at += 4096) {
            const std::string piece = found.substr(at, 4096);
            REQUIRE((piece == std::string(4096, 'b') || piece == std::string(4096, '\0')));
        }
    }
    CHECK(torn.size() > 4);
    CHECK(torn.count(first + std::string(4096, '\0') + std::string(4096, 'b')) == 1);
}

TEST_CASE("a torn state never damages what was synced before an append") {
    MemoryFileSystem files;
    const auto file = files.open("journal", Open::Append);
    file->write(bytes_of(std::string(5000, 'a')));
    file->sync();
    files.sync_directory("/");
    file->write(bytes_of(std::string(100, 'b')));
    std::size_t damaged = 0;
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
        const std::string found = *files.random_crash_state(seed)->contents("journal");
        damaged += found.substr(0, 5000) == std::string(5000, 'a') ? 0 : 1;
    }
    CHECK(damaged == 0);
}

TEST_CASE("states are reproducible, and after a crash nothing works any more") {
    MemoryFileSystem files;
    files.crash_at(2);
    CHECK_THROWS_AS(write_text_atomically(files, "f", "text"), Crash);  // at its sync
    CHECK_THROWS_AS(files.list("/"), Crash);
    CHECK_THROWS_AS(files.open("g", Open::CreateNew), Crash);
    CHECK(files.mutations() == 3);
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
        const auto a = files.random_crash_state(seed);
        const auto b = files.random_crash_state(seed);
        REQUIRE(a->all_files() == b->all_files());
        for (const std::string& path : a->all_files()) REQUIRE(a->contents(path) == b->contents(path));
        REQUIRE(a->crash_state_count() == 1);
    }
    CHECK(files.all_kept()->contents(".f.part") == "text");
    CHECK(files.crash_state(0)->all_files().empty());
}

TEST_CASE("too many states are sampled, always with the two extremes") {
    MemoryFileSystem files;
    for (int i = 0; i < 40; ++i) files.open("f" + std::to_string(i), Open::CreateNew)->write(bytes_of("x"));
    CHECK(files.crash_state_count() == std::numeric_limits<std::uint64_t>::max());
    std::size_t calls = 0;
    std::set<std::size_t> sizes;
    for_each_crash_state(files, 20, [&](MemoryFileSystem& disk, const std::string&) {
        ++calls;
        sizes.insert(disk.all_files().size());
    });
    CHECK(calls == 20);
    CHECK(sizes.count(0) == 1);
    CHECK(sizes.count(40) == 1);
}
