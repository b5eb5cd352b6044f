// Damage of every kind, by seed, to a checkpoint of two ranks that has older siblings and, in every second
// trial, a copy in a further place: it is always noticed, the part is named, and what is loaded instead holds
// exactly what was saved.
#include <algorithm>
#include <array>
#include <random>

#include "checkpoint/toy_state.h"
#include "support/catch.h"
#include "support/memory_file_system.h"
#include "support/rank_links.h"
#include "support/trials.h"
#include "trainctl/base/error.h"
#include "trainctl/checkpoint/commands.h"
#include "trainctl/checkpoint/tier_copy.h"

using namespace trainctl;
using namespace trainctl::test;

namespace {

constexpr int ranks = 2;
constexpr const char* first_root = "ck";
constexpr const char* copy_root = "second/ck";
constexpr std::uint64_t chunk_bytes = 512;
constexpr std::uint64_t header_bytes = 4096;  // of a payload file, with its padding
const std::array<std::string, 4> parts{"COMMIT", "MANIFEST", "r00000.st", "r00001.st"};

// Steps 5, 10 and 20; 20 also at the other place.
struct Original {
    MemoryFileSystem files;
    std::string newest;  // directory names
    std::string older;

    Original() {
        ManualClock clock;
        run_linked_ranks(ranks, RankOrder::Serial, [&](RankLink& link) {
            CheckpointStore store(files, clock, toy_settings(first_root), nullptr, {});
            CopySettings how;
            how.from = {"first", first_root, Reach::Everybody};
            how.run_id = "run-1";
            TierCopier copier(files, clock, how);
            SliceSet mine =
                std::move(flat_layout(small_tensors(), ranks)[static_cast<std::size_t>(link.rank())]);
            for (const std::int64_t step : {5, 10, 20}) {
                mine.fill(static_cast<std::uint64_t>(step));
                const std::string saved = store.save(toy_snapshot(step, mine), link).value().directory;
                if (link.rank() == 0) older = std::exchange(newest, saved);
            }
            copier.copy(newest, {"second", copy_root, Reach::Everybody}, link).value();
        });
    }
    [[nodiscard]] std::string path(const std::string& part) const {
        return join_path(join_path(first_root, newest), part);
    }
};

enum class Kind { Flip, Truncation, Empty, Exchange, Missing };

struct Damage {
    Kind kind = Kind::Flip;
    std::string part;
    std::uint64_t place = 0;  // Flip: bit; Truncation: bytes that are left
    bool read_by_load = true;
    std::int64_t newest_left = 10;  // the newest step that is whole in the first place
    std::string named;              // what a message about it must say
};

// Numbers of trials by kind; the kinds take turns, so that any range of trials has its share of all.
constexpr std::array<std::pair<Kind, std::uint64_t>, 5> shares{
    {{Kind::Flip, 20}, {Kind::Truncation, 5}, {Kind::Empty, 2}, {Kind::Exchange, 1}, {Kind::Missing, 1}}};
constexpr std::uint64_t turn = 29;
constexpr std::uint64_t all_trials = 100 * turn;

Kind kind_of(std::uint64_t trial) {
    std::uint64_t place = trial % turn;
    for (const auto& [kind, share] : shares) {
        if (place < share) return kind;
        place -= share;
    }
    throw std::logic_error("more trials in a turn than shares");
}

Damage draw(std::uint64_t trial, const Original& original) {
    std::mt19937_64 random(trial);
    Damage damage;
    damage.kind = kind_of(trial);
    damage.part = parts.at(random() % parts.size());
    const bool payload = damage.part.front() == 'r';
    const std::uint64_t size = original.files.contents(original.path(damage.part))->size();
    damage.named = damage.part;
    if (damage.kind == Kind::Flip) {
        damage.place = random() % (size * 8);
        const std::uint64_t byte = damage.place / 8;
        // The header is in chunks of its own, which only `ckpt verify` reads.
        damage.read_by_load = !payload || byte >= header_bytes;
        if (payload) {
            const std::uint64_t chunk = byte / chunk_bytes;
            damage.named += " is damaged: chunk " + std::to_string(chunk) + " (bytes " +
                            std::to_string(chunk * chunk_bytes) + " to " +
                            std::to_string(std::min(size, (chunk + 1) * chunk_bytes)) + ")";
        }
    } else if (damage.kind == Kind::Truncation) {
        damage.place = 1 + random() % (size - 1);
        if (payload) damage.named += " is truncated: " + std::to_string(size) + " bytes expected";
    } else if (damage.kind == Kind::Empty) {
        damage.named += payload || damage.part == "COMMIT" ? " is empty" : " has the wrong size";
    } else if (damage.kind == Kind::Exchange) {
        damage.place = random();
        const bool between_ranks = payload && damage.place % 2 == 0;
        damage.newest_left = between_ranks ? 10 : 5;
        // Both files of the exchange are wrong; the first that is met is named.
        damage.named = !payload ? "MANIFEST" : between_ranks ? "r0000" : damage.part;
    } else if (damage.part == "COMMIT") {
        damage.named = "the save was not completed, or the checkpoint was deleted";
    } else {
        damage.named += " is missing";
    }
    return damage;
}

// The same part of the other step, or the other rank's of this step.
void exchange(MemoryFileSystem& disk, const Original& original, const Damage& damage) {
    const std::string path = original.path(damage.part);
    const bool payload = damage.part.front() == 'r';
    std::string other = join_path(join_path(first_root, original.older), damage.part);
    if (payload && damage.place % 2 == 0)
        other = original.path(damage.part == "r00000.st" ? "r00001.st" : "r00000.st");
    const std::string mine = *disk.contents(path);
    disk.put(path, *disk.contents(other));
    disk.put(other, mine);
}

void apply(MemoryFileSystem& disk, const Original& original, const Damage& damage) {
    const std::string path = original.path(damage.part);
    switch (damage.kind) {
        case Kind::Flip:
            disk.flip_bit(path, damage.place);
            break;
        case Kind::Truncation:
            disk.truncate(path, damage.place);
            break;
        case Kind::Empty:
            disk.truncate(path, 0);
            break;
        case Kind::Exchange:
            exchange(disk, original, damage);
            break;
        case Kind::Missing:
            disk.erase(path);
            break;
    }
}

// What a load says, with everything that it passed over.
struct Loaded {
    std::int64_t step = -1;  // -1: nothing
    bool right = false;      // every element is of that step
    std::string text;
};

Loaded load(MemoryFileSystem& disk, const std::vector<Place>& copies) {
    ManualClock clock;
    SoloLink solo;
    SliceSet all = std::move(flat_layout(small_tensors(), 1)[0]);
    all.clear();
    StoreSettings settings = toy_settings(first_root);
    settings.copies = copies;
    CheckpointStore store(disk, clock, settings, nullptr, {});
    Loaded loaded;
    try {
        const LoadReport report = store.load_newest({all.slices(), {"consumed_samples"}}, solo);
        loaded.step = report.manifest.step;
        loaded.right = all.holds(static_cast<std::uint64_t>(loaded.step)) && report.state_hash.has_value();
        for (const std::string& line : report.passed_over) loaded.text += line + "\n";
    } catch (const Error& error) {
        loaded.text = error.what();
    }
    return loaded;
}

// Everything that `ckpt verify` says about the newest checkpoint; empty if it is good.
std::string verify(MemoryFileSystem& disk, const Original& original) {
    try {
        const CommandResult result =
            checkpoint_verify(disk, join_path(first_root, original.newest), OutputFormat::Text);
        return result.exit == Exit::Ok ? std::string() : result.out;
    } catch (const Error& error) {
        return error.what();
    }
}

}  // namespace

TEST_CASE("damage of any kind is noticed and named, and what is loaded instead is right", "[C9]") {
    const Original original;
    const TrialRange trials = trial_range(all_trials);
    const std::vector<Place> copies{{"second", copy_root, Reach::Everybody}};
    REQUIRE(original.files.contents(original.path("r00001.st"))->size() > header_bytes);
    std::uint64_t by_verify_alone = 0;
    for (std::uint64_t trial = trials.first; trial < trials.end; ++trial) {
        const Damage damage = draw(trial, original);
        const auto disk = original.files.all_kept();
        apply(*disk, original, damage);
        const bool replicated = trial % 2 == 1;
        const Loaded loaded = load(*disk, replicated ? copies : std::vector<Place>{});
        CAPTURE(trial, damage.part, damage.place, damage.named, replicated, loaded.text);
        REQUIRE(loaded.right);
        // Verified on a disk that no load has marked.
        const auto again = original.files.all_kept();
        apply(*again, original, damage);
        const std::string verified = verify(*again, original);
        CAPTURE(verified);
        REQUIRE(verified.find(damage.named) != std::string::npos);
        if (!damage.read_by_load) {
            REQUIRE(loaded.step == 20);
            ++by_verify_alone;
            continue;
        }
        REQUIRE(loaded.step == (replicated ? 20 : damage.newest_left));
        // A COMMIT that is gone says that there was no checkpoint: nothing to report while another has it.
        const bool silent = replicated && damage.kind == Kind::Missing && damage.part == "COMMIT";
        if (!silent) REQUIRE(loaded.text.find(damage.named) != std::string::npos);
    }
    report_trials("C9", trials.end - trials.first, "corruptions");
    if (trials.end - trials.first >= turn) CHECK(by_verify_alone > 0);
}
