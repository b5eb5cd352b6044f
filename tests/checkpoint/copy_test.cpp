// Copies of a checkpoint: verified on the way, whole or absent, and never worse than before after any
// failure.
#include "checkpoint/payload_copy.h"
#include "checkpoint/toy_state.h"
#include "support/catch.h"
#include "support/memory_file_system.h"
#include "support/rank_links.h"
#include "trainctl/base/error.h"

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

std::optional<Error> error_of(const std::function<void()>& action) {
    try {
        action();
    } catch (const Error& error) {
        return error;
    }
    return std::nullopt;
}

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
