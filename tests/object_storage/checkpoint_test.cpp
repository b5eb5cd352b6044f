// Checkpoints on a store that goes wrong all the time (C18): what is committed loads, what was reported as
// saved is committed, and everything ends within its bound.
#include <random>

#include "checkpoint/toy_state.h"
#include "object_storage/store_fixture.h"
#include "support/catch.h"
#include "support/rank_links.h"
#include "trainctl/base/hash.h"
#include "trainctl/checkpoint/commands.h"

using namespace trainctl;
using namespace trainctl::test;

namespace {

const std::string root = "s3://bucket/run/checkpoints";
constexpr int ranks = 2;

bool save(StoreFixture& s, std::int64_t step) {
    bool saved = false;
    run_linked_ranks(ranks, RankOrder::Serial, [&](RankLink& link) {
        CheckpointStore store(*s.files, s.clock, toy_settings(root, static_cast<int>(step)), nullptr, {});
        SliceSet mine = std::move(flat_layout(small_tensors(), ranks)[static_cast<std::size_t>(link.rank())]);
        mine.fill(static_cast<std::uint64_t>(step));
        const auto result = store.save(toy_snapshot(step, mine), link);
        if (link.rank() == 0) saved = result.ok();
    });
    return saved;
}

// With `probability` a request fails, in a way that its name, its repetition and the seed decide; once
// `dying` requests have come, all fail.
StrictS3::FaultChoice faults_of(std::uint64_t seed, double probability, int dying) {
    return [seed, probability, dying, count = 0](const std::string& what, int before) mutable {
        const std::string mixed = what + "#" + std::to_string(before);
        const std::uint64_t random = hash64(std::as_bytes(std::span(mixed)), seed);
        const bool fails = ++count > dying || static_cast<double>(random >> 32U) * 0x1p-32 < probability;
        if (!fails) return StoreFault::None;
        const auto fault =
            static_cast<StoreFault>(1 + random % (fault_kinds - 2));  // none that takes real time
        const bool in_200 = fault == StoreFault::ErrorIn200 || fault == StoreFault::LateErrorIn200;
        // An answer to HEAD has no body that could take back its status.
        return in_200 && what.starts_with("HEAD") ? StoreFault::Error500 : fault;
    };
}

// Every directory with a COMMIT holds its step, to the last byte.
std::set<std::int64_t> committed_steps(StoreFixture& s) {
    s.reconnect();
    std::set<std::int64_t> steps;
    for (const CompleteCheckpoint& found : scan_checkpoints(*s.files, root, "run-1").complete) {
        const CommandResult verified = checkpoint_verify(*s.files, found.path, OutputFormat::Text);
        INFO(verified.out);
        REQUIRE(verified.exit == Exit::Ok);
        SoloLink solo;
        SliceSet all = std::move(flat_layout(small_tensors(), 1)[0]);
        all.clear();
        CheckpointStore store(*s.files, s.clock, toy_settings(root, 99), nullptr, {});
        store.load_step(found.name.step, {all.slices(), {}}, solo);
        REQUIRE(all.holds(static_cast<std::uint64_t>(found.name.step)));
        steps.insert(found.name.step);
    }
    return steps;
}

struct Tally {
    int saved = 0;
    int failed = 0;
};

void check_seed(std::uint64_t seed, Tally& tally) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    StrictS3Options options;
    options.says_whole_crc = random() % 2 == 0;
    options.knows_completed = random() % 2 == 0;
    StoreFixture s(options);
    s.settings.part_bytes = 500;  // three parts a file
    s.settings.retry_for_s = 15.0;
    s.reconnect();
    const double probability = std::array{0.05, 0.2, 0.4}[random() % 3];
    const bool dies = random() % 3 == 0;
    const int dying = dies ? static_cast<int>(random() % 150) : 1'000'000;
    s.store.set_faults(faults_of(seed, probability, dying));
    std::set<std::int64_t> reported;
    const double start = s.clock.monotonic_s();
    for (const std::int64_t step : {10, 20}) {
        if (save(s, step)) reported.insert(step);
    }
    // Two saves of some forty calls, each of at most a minute and a pause.
    REQUIRE(s.clock.monotonic_s() - start < 2 * 40 * (s.settings.retry_for_s + 20.0));
    REQUIRE(s.store.seen().size() < 4000);
    s.store.set_faults({});
    const std::set<std::int64_t> committed = committed_steps(s);
    for (const std::int64_t step : reported) REQUIRE(committed.count(step) == 1);
    REQUIRE(s.store.violations() == std::vector<std::string>{});
    tally.saved += static_cast<int>(reported.size());
    tally.failed += 2 - static_cast<int>(reported.size());
    // The store is well again: so is saving.
    REQUIRE(save(s, 30));
    REQUIRE(committed_steps(s).count(30) == 1);
}

void check_seeds(std::uint64_t first, std::uint64_t count) {
    Tally tally;
    for (std::uint64_t seed = first; seed < first + count; ++seed) check_seed(seed, tally);
    CHECK(tally.saved > static_cast<int>(count));  // most faults are made good
    CHECK(tally.failed > 0);                       // and some cannot be
}

}  // namespace

TEST_CASE("checkpoints on a store that goes wrong are never half there", "[threads]") { check_seeds(1, 70); }

TEST_CASE("checkpoints on a store that goes wrong: the whole count", "[campaign]") {
    check_seeds(1000, 2000);
}

TEST_CASE("a checkpoint on an object store is listed, verified, and its damage found", "[threads]") {
    StoreFixture s;
    REQUIRE(save(s, 10));
    REQUIRE(save(s, 20));
    CHECK_THAT(checkpoint_list(*s.files, "s3://bucket/run", OutputFormat::Text).out,
               Catch::Contains("10") && Catch::Contains("20"));
    std::string damaged;
    for (const auto& [path, bytes] : s.store.objects()) {
        if (path.find("s000000020") == std::string::npos || !path.ends_with(".st")) continue;
        std::string changed = bytes;
        changed.back() ^= 1;
        s.store.put(path, changed);
        damaged = path;
    }
    REQUIRE_FALSE(damaged.empty());
    const std::string directory = "s3://" + damaged.substr(0, damaged.rfind('/'));
    CHECK(checkpoint_verify(*s.files, directory, OutputFormat::Text).exit == Exit::BadInput);
    SoloLink solo;
    SliceSet all = std::move(flat_layout(small_tensors(), 1)[0]);
    CheckpointStore store(*s.files, s.clock, toy_settings(root, 99), nullptr, {});
    const LoadReport report = store.load_newest({all.slices(), {}}, solo);
    CHECK(report.manifest.step == 10);
    CHECK(all.holds(10));
}
