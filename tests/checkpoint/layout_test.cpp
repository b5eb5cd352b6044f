// Any layout is written, any layout is read: boxes, ranges and hashes against element-by-element oracles.
#include <algorithm>

#include "checkpoint/toy_state.h"
#include "support/catch.h"
#include "support/memory_file_system.h"
#include "support/rank_links.h"
#include "trainctl/base/error.h"
#include "trainctl/checkpoint/commands.h"
#include "trainctl/checkpoint/slice_runs.h"
#include "trainctl/checkpoint/state_hash.h"
#include "trainctl/rundir/safetensors.h"

using namespace trainctl;
using namespace trainctl::test;

namespace {

ToyTensor random_tensor(int index, std::mt19937_64& random) {
    static constexpr DType dtypes[] = {DType::F32, DType::BF16, DType::U8, DType::F64, DType::F32};
    ToyTensor tensor{"t" + std::to_string(index), Shape{}, dtypes[random() % 5]};
    switch (random() % 5) {
        case 0:
            break;
        case 1:
            tensor.global = Shape{static_cast<std::int64_t>(1 + random() % 700)};
            break;
        case 2:
            tensor.global = Shape{static_cast<std::int64_t>(1 + random() % 40),
                                  static_cast<std::int64_t>(1 + random() % 40)};
            break;
        case 3:
            tensor.global = Shape{static_cast<std::int64_t>(1 + random() % 5),
                                  static_cast<std::int64_t>(1 + random() % 9),
                                  static_cast<std::int64_t>(1 + random() % 7)};
            break;
        default:
            tensor.global = Shape{2, static_cast<std::int64_t>(1 + random() % 3), 4,
                                  static_cast<std::int64_t>(1 + random() % 6)};
            break;
    }
    return tensor;
}

std::function<void(std::span<const StagedPart>)> taken_by(const SliceSet& set) {
    return [&set](std::span<const StagedPart> parts) {
        for (const StagedPart& part : parts)
            std::copy(part.bytes.begin(), part.bytes.end(),
                      set.slices().at(part.slice).view.data + part.begin);
    };
}

}  // namespace

TEST_CASE("a state saved at any layout loads into any other, bit-exact and with the same state hash") {
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random(seed);
        std::vector<ToyTensor> tensors;
        for (int index = 0; index < 5; ++index) tensors.push_back(random_tensor(index, random));
        const int writers = 1 + static_cast<int>(random() % 4);
        const int readers = 1 + static_cast<int>(random() % 4);
        std::vector<SliceSet> saved = random_layout(tensors, writers, random);
        std::vector<SliceSet> loaded = random_layout(tensors, readers, random);
        for (SliceSet& set : saved) set.fill(seed);

        MemoryFileSystem files;
        ManualClock clock;
        std::uint64_t saved_hash = 0;
        run_linked_ranks(writers, RankOrder::Concurrent, [&](RankLink& link) {
            CheckpointStore store(files, clock, toy_settings("ck"), nullptr, {});
            const auto report =
                store.save(toy_snapshot(5, saved[static_cast<std::size_t>(link.rank())]), link);
            if (link.rank() == 0) saved_hash = report.value().state_hash;
        });
        std::vector<LoadReport> reports(static_cast<std::size_t>(readers));
        run_linked_ranks(readers, RankOrder::Concurrent, [&](RankLink& link) {
            const auto rank = static_cast<std::size_t>(link.rank());
            loaded[rank].clear();
            CheckpointStore store(files, clock, toy_settings("ck"), nullptr, {});
            LoadRequest load{loaded[rank].slices(), {"consumed_samples"}};
            std::vector<std::byte> staging(64 + 96 * (seed % 40));
            const bool through = seed % 2 == 1;
            if (through) load.through = {staging, taken_by(loaded[rank])};
            for (NamedSlice& slice : load.wanted)
                if (through) slice.view.data = nullptr;  // memory that the host cannot reach
            reports[rank] = store.load_newest(load, link);
        });
        for (std::size_t rank = 0; rank < reports.size(); ++rank) {
            CHECK(loaded[rank].holds(seed));
            CHECK(reports[rank].state_hash == saved_hash);
            CHECK(reports[rank].manifest.counters.at("consumed_samples") == 160);
        }
        // Parts that overlap and cover only some of it.
        SliceSet parts = random_parts(tensors, 12, random);
        parts.clear();
        CheckpointStore store(files, clock, toy_settings("ck"), nullptr, {});
        SoloLink solo;
        store.load_newest({parts.slices(), {}}, solo);
        CHECK(parts.holds(seed));
        CHECK(checkpoint_verify(files, "ck", OutputFormat::Text).exit == Exit::Ok);
    }
}

TEST_CASE(
    "slices that several ranks hold are written once, and loading them everywhere compares the copies") {
    const std::vector<ToyTensor> tensors = small_tensors();
    std::vector<SliceSet> sets(3);
    for (SliceSet& set : sets) {
        for (const ToyTensor& tensor : tensors)
            set.add(tensor, whole_box(tensor.global), {0, tensor.global.elements()});
        set.fill(1);
    }
    MemoryFileSystem files;
    ManualClock clock;
    std::vector<std::optional<std::uint64_t>> hashes(3);
    std::uint64_t bytes = 0;
    run_linked_ranks(3, RankOrder::Concurrent, [&](RankLink& link) {
        const auto rank = static_cast<std::size_t>(link.rank());
        CheckpointStore store(files, clock, toy_settings("ck"), nullptr, {});
        const auto saved = store.save(toy_snapshot(1, sets[rank]), link);
        if (rank == 0) bytes = saved.value().bytes;
        sets[rank].clear();
        hashes[rank] = store.load_newest({sets[rank].slices(), {}}, link).state_hash;
    });
    CHECK(bytes == 4096 + 2 * 12 * 7 * 4 + 7 * 4 + 15 * 2 + 8);  // one file
    for (std::size_t rank = 0; rank < 3; ++rank) {
        CHECK(sets[rank].holds(1));
        REQUIRE(hashes[rank]);
        CHECK(hashes[rank] == hashes[0]);
    }
}

TEST_CASE("overlaps equal the intersection found element by element") {
    std::mt19937_64 random(7);
    for (int round = 0; round < 300; ++round) {
        const ToyTensor tensor = random_tensor(0, random);
        const SliceSet two = [&] {
            SliceSet set;
            while (set.slices().size() < 2) {
                const SliceSet one = random_parts({tensor}, 1, random);
                set.add(tensor, one.slices()[0].box, one.slices()[0].flat);
            }
            return set;
        }();
        const NamedSlice& a = two.slices()[0];
        const NamedSlice& b = two.slices()[1];
        const auto positions = [&](const NamedSlice& slice) {
            std::vector<std::int64_t> found;
            RunWalker walker(slice.global, slice.box, {0, slice.box.extent.elements()});
            for (std::int64_t flat = slice.flat.begin; flat < slice.flat.end; ++flat)
                found.push_back(walker.global_index(flat));
            return found;
        };
        const std::vector<std::int64_t> at_a = positions(a);
        const std::vector<std::int64_t> at_b = positions(b);
        REQUIRE(std::is_sorted(at_a.begin(), at_a.end()));
        std::vector<std::int64_t> expected;
        std::set_intersection(at_a.begin(), at_a.end(), at_b.begin(), at_b.end(),
                              std::back_inserter(expected));
        std::vector<std::int64_t> found;
        bool agree_on_position = true;
        for_each_overlap(tensor.global, a.box, a.flat, b.box, b.flat, [&](const Overlap& part) {
            for (std::int64_t index = 0; index < part.length; ++index) {
                found.push_back(at_a.at(static_cast<std::size_t>(part.a_local + index)));
                agree_on_position = agree_on_position &&
                                    found.back() == at_b.at(static_cast<std::size_t>(part.b_local + index));
            }
        });
        CHECK(found == expected);
        CHECK(agree_on_position);
    }
}

TEST_CASE("the state hash sees every bit, the position, the name and the dtype, and not the layout") {
    const ToyTensor tensor{"w", Shape{9, 40}, DType::F32};
    std::mt19937_64 random(3);
    const auto whole = [&] {
        SliceSet set;
        set.add(tensor, whole_box(tensor.global), {0, 360});
        set.fill(1);
        return set;
    };
    const SliceSet reference = whole();
    for (int round = 0; round < 50; ++round) {
        std::uint64_t sum = 0;
        for (SliceSet& set : random_layout({tensor}, 3, random)) {
            set.fill(1);
            sum += set.hash();
        }
        CHECK(sum == reference.hash());
    }
    SliceSet changed = whole();
    std::byte* bytes = changed.slices()[0].view.data;
    for (std::size_t bit = 0; bit < 360 * 32; bit += 13) {
        bytes[bit / 8] ^= std::byte(1U << (bit % 8));
        CHECK(changed.hash() != reference.hash());
        bytes[bit / 8] ^= std::byte(1U << (bit % 8));
    }
    for (std::size_t element = 0; element + 4 < 360 * 4; element += 4) {  // neighbours exchanged
        std::swap_ranges(bytes + element, bytes + element + 4, bytes + element + 4);
        if (element % 64 == 0) CHECK(changed.hash() != reference.hash());
        std::swap_ranges(bytes + element, bytes + element + 4, bytes + element + 4);
    }
    CHECK(changed.hash() == reference.hash());
    CHECK(state_hash_term("a", "F32", Shape{4}, 1) != state_hash_term("b", "F32", Shape{4}, 1));
    CHECK(state_hash_term("a", "F32", Shape{4}, 1) != state_hash_term("a", "BF16", Shape{4}, 1));
    CHECK(state_hash_term("a", "F32", Shape{4}, 1) != state_hash_term("a", "F32", Shape{2, 2}, 1));
}

TEST_CASE("a state that is incomplete, doubled or disagreeing over ranks is refused on all ranks") {
    const ToyTensor tensor{"w", Shape{8}, DType::F32};
    const auto save = [&](const std::function<void(int, SliceSet&, Snapshot&)>& change) {
        MemoryFileSystem files;
        ManualClock clock;
        std::vector<std::string> texts(2);
        run_linked_ranks(2, RankOrder::Concurrent, [&](RankLink& link) {
            CheckpointStore store(files, clock, toy_settings("ck"), nullptr, {});
            SliceSet set;
            set.add(tensor, whole_box(tensor.global), link.rank() == 0 ? Range{0, 4} : Range{4, 8});
            Snapshot snapshot = toy_snapshot(5, set);
            change(link.rank(), set, snapshot);
            const auto result = store.save(snapshot, link);
            texts[static_cast<std::size_t>(link.rank())] = result.ok() ? "saved" : result.error().what();
        });
        CHECK(texts[0] == texts[1]);
        CHECK((texts[0] == "saved") == !scan_checkpoints(files, "ck", "").complete.empty());
        return texts[0];
    };
    const auto mentions = [](const std::string& text, const char* part) {
        return text.find(part) != std::string::npos;
    };
    CHECK(save([](int, SliceSet&, Snapshot&) {}) == "saved");
    CHECK(mentions(save([](int rank, SliceSet&, Snapshot& s) {
                       if (rank == 1) s.slices.clear();
                   }),
                   "misses elements 4 to 8"));
    CHECK(mentions(save([](int rank, SliceSet&, Snapshot& s) {
                       if (rank == 1) s.slices[0].flat = {3, 7};
                   }),
                   "has twice elements 3 to 4"));
    CHECK(mentions(save([](int rank, SliceSet&, Snapshot& s) {
                       if (rank == 1) s.slices[0].view.dtype = DType::I32;
                   }),
                   "disagree about dtype"));
    CHECK(mentions(save([](int rank, SliceSet&, Snapshot& s) {
                       if (rank == 1) s.step = 6;
                   }),
                   "rank 1 has step 6, rank 0 has 5"));
    CHECK(mentions(save([](int rank, SliceSet&, Snapshot& s) {
                       if (rank == 1) s.counters["consumed_samples"] = 1;
                   }),
                   "counters"));
    CHECK(mentions(save([](int rank, SliceSet&, Snapshot& s) {
                       if (rank == 1) s.slices[0].view.shape = Shape{3};
                   }),
                   "[rank 1] slice of tensor"));
}

TEST_CASE(
    "what was not saved as wanted is refused on all ranks: missing tensor, other shape, other dtype, missing "
    "counter") {
    MemoryFileSystem files;
    ManualClock clock;
    SoloLink solo;
    CheckpointStore store(files, clock, toy_settings("ck"), nullptr, {});
    const ToyTensor tensor{"w", Shape{2, 4}, DType::F32};
    SliceSet set;
    set.add(tensor, whole_box(tensor.global), {0, 8});
    REQUIRE(store.save(toy_snapshot(5, set), solo).ok());
    const auto load = [&](const ToyTensor& wanted, const std::vector<std::string>& counters) {
        SliceSet target;
        target.add(wanted, whole_box(wanted.global), {0, wanted.global.elements()});
        try {
            store.load_newest({target.slices(), counters}, solo);
        } catch (const Error& error) {
            CHECK(error.code() == Exit::BadInput);
            return std::string(error.what());
        }
        return std::string("loaded");
    };
    CHECK(load(tensor, {"consumed_samples"}) == "loaded");
    CHECK(load({"v", Shape{2, 4}, DType::F32}, {}).find("no tensor \"v\"") != std::string::npos);
    CHECK(load({"w", Shape{4, 2}, DType::F32}, {}).find("[4, 2]") != std::string::npos);
    CHECK(load({"w", Shape{2, 4}, DType::I32}, {}).find("I32") != std::string::npos);
    CHECK(load(tensor, {"consumed_tokens"}).find("counter 'consumed_tokens' is missing") !=
          std::string::npos);
}

TEST_CASE("a payload file is plain safetensors: whole tensors under their own names, data aligned to 4096") {
    MemoryFileSystem files;
    ManualClock clock;
    SoloLink solo;
    CheckpointStore store(files, clock, toy_settings("ck"), nullptr, {});
    SliceSet set;
    for (const ToyTensor& tensor : small_tensors())
        set.add(tensor, whole_box(tensor.global), {0, tensor.global.elements()});
    set.fill(2);
    const std::string directory = store.save(toy_snapshot(5, set), solo).value().directory;
    const SafetensorsHeader header = read_safetensors_header(files, "ck/" + directory + "/r00000.st");
    CHECK(header.data_offset % 4096 == 0);
    CHECK(header.metadata.at("format") == "pt");
    REQUIRE(header.tensors.size() == small_tensors().size());
    const std::string bytes = *files.contents("ck/" + directory + "/r00000.st");
    for (const NamedSlice& slice : set.slices()) {
        const auto found =
            std::find_if(header.tensors.begin(), header.tensors.end(),
                         [&](const SafetensorsEntry& entry) { return entry.name == slice.name; });
        REQUIRE(found != header.tensors.end());
        CHECK(static_cast<int>(found->shape.size()) == slice.global.rank());
        CHECK(found->begin % dtype_size(slice.view.dtype) == 0);
        CHECK(bytes.compare(header.data_offset + found->begin, slice.view.bytes(),
                            reinterpret_cast<const char*>(slice.view.data), slice.view.bytes()) == 0);
    }
}
