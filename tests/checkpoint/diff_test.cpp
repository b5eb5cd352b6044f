// `ckpt diff`: the same state at any layouts is the same; anything else is named.
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "checkpoint/diff_values.h"
#include "checkpoint/toy_state.h"
#include "support/catch.h"
#include "support/memory_file_system.h"
#include "support/rank_links.h"
#include "trainctl/base/error.h"
#include "trainctl/checkpoint/commands.h"

using namespace trainctl;
using namespace trainctl::test;

namespace {

// Saved to `root` by ranks that hold `sets`; returns the path of the checkpoint.
std::string save(MemoryFileSystem& files, const std::string& root, const std::vector<SliceSet>& sets,
                 const std::function<void(Snapshot&)>& change = {}) {
    ManualClock clock;
    std::string path;
    run_linked_ranks(static_cast<int>(sets.size()), RankOrder::Serial, [&](RankLink& link) {
        CheckpointStore store(files, clock, toy_settings(root), nullptr, {});
        Snapshot snapshot = toy_snapshot(10, sets[static_cast<std::size_t>(link.rank())]);
        if (change) change(snapshot);
        const SaveReport report = store.save(snapshot, link).value();
        if (link.rank() == 0) path = join_path(root, report.directory);
    });
    return path;
}

std::vector<SliceSet> filled(std::vector<SliceSet> sets, std::uint64_t version = 10) {
    for (SliceSet& set : sets) set.fill(version);
    return sets;
}

// One tensor with these elements.
template <class Element>
std::string save_values(MemoryFileSystem& files, const std::string& root, std::vector<Element> values,
                        DType dtype) {
    const Shape shape{static_cast<std::int64_t>(values.size())};
    ManualClock clock;
    SoloLink solo;
    CheckpointStore store(files, clock, toy_settings(root), nullptr, {});
    Snapshot snapshot;
    snapshot.step = 1;
    snapshot.slices = {whole_slice("x", {reinterpret_cast<std::byte*>(values.data()), shape, dtype})};
    return join_path(root, store.save(snapshot, solo).value().directory);
}

}  // namespace

TEST_CASE("the same state saved at other layouts is the same; the layout is named") {
    std::mt19937_64 random(3);
    MemoryFileSystem files;
    const std::string a = save(files, "a", filled(random_layout(small_tensors(), 3, random)));
    const std::string b = save(files, "b", filled(random_layout(small_tensors(), 1, random)),
                               [](Snapshot& snapshot) { snapshot.layout["world"] = 1; });
    for (const DiffDepth depth : {DiffDepth::Hashes, DiffDepth::Values}) {
        const std::uint64_t before = files.operations().size();
        const CommandResult result = checkpoint_diff(files, a, "b", depth, OutputFormat::Text);
        CHECK(result.exit == Exit::Ok);
        CHECK(mentions(result.out, "world: 2 in A, 1 in B"));
        CHECK(mentions(result.out, "the same state"));
        for (std::uint64_t index = before; index < files.operations().size(); ++index) {
            const Operation operation = files.operations()[index];
            CHECK_FALSE((operation.op == FileOp::Read && mentions(operation.path, ".st")));
        }
    }
}

TEST_CASE("what differs is named: tensors on one side, shapes, contents, counters, scalars, the job") {
    MemoryFileSystem files;
    std::vector<ToyTensor> tensors = small_tensors();
    const std::string a = save(files, "a", filled(flat_layout(tensors, 2)));
    tensors[2].global = Shape{8};
    tensors[3].name = "other half";
    const std::string b = save(files, "b", filled(flat_layout(tensors, 1), 11), [](Snapshot& snapshot) {
        snapshot.counters["consumed_samples"] = 1;
        snapshot.counters["extra"] = 5;
        snapshot.scalars["loss_scale"] = std::nan("");
        snapshot.spec = "[job]\nname = \"other\"\n";
    });
    const CommandResult text = checkpoint_diff(files, a, b, DiffDepth::Hashes, OutputFormat::Text);
    CHECK(text.exit == Exit::BadInput);
    for (const char* part :
         {"block.weight: F32 [12, 7], other contents", "norm.gain: F32 [7] in A, F32 [8] in B",
          "  half: BF16 [3, 5] only in A", "other half: BF16 [3, 5] only in B",
          "consumed_samples: 320 in A, 1 in B", "extra: 5 only in B", "loss_scale: 65536 in A, nan in B",
          "job:", "different states"}) {
        INFO(part << "\n" << text.out);
        CHECK(mentions(text.out, part));
    }
    const CommandResult json = checkpoint_diff(files, a, b, DiffDepth::Values, OutputFormat::Json);
    CHECK(json.exit == Exit::BadInput);
    const auto document = nlohmann::json::parse(json.out);
    CHECK(document["same_state"] == false);
    CHECK(document["tensors"][0]["name"] == "block.weight");
    CHECK(document["tensors"][0]["elements"] == 84);
    CHECK(document["tensors"][0]["differing"] == 84);
    CHECK(checkpoint_diff(files, a, a, DiffDepth::Values, OutputFormat::Json).exit == Exit::Ok);
}

TEST_CASE("values are compared in every dtype, over many blocks, and what is not finite is counted apart") {
    MemoryFileSystem files;
    const auto compare = [&](const std::string& a, const std::string& b) {
        return compare_values(files, a, read_committed(files, a).manifest, b,
                              read_committed(files, b).manifest, "x");
    };
    std::vector<float> many(2500000, 1.0F);
    const std::string long_a = save_values(files, "la", many, DType::F32);
    many.back() = 3.0F;
    many[1200000] = 0.5F;
    const ValueDifference far = compare(long_a, save_values(files, "lb", many, DType::F32));
    CHECK(far.elements == 2500000);
    CHECK(far.differing == 2);
    CHECK(far.max_absolute == 2.0);
    CHECK(far.max_relative == 2.0 / 3.0);

    const float infinity = std::numeric_limits<float>::infinity();
    const ValueDifference odd =
        compare(save_values<float>(files, "oa", {0.0F, 1.0F, infinity, NAN}, DType::F32),
                save_values<float>(files, "ob", {-0.0F, infinity, infinity, NAN}, DType::F32));
    CHECK(odd.differing == 2);
    CHECK(odd.not_finite == 1);
    CHECK(odd.max_absolute == 0.0);

    const ValueDifference half =
        compare(save_values<std::uint16_t>(files, "ha", {to_bfloat16(2.0F).bits}, DType::BF16),
                save_values<std::uint16_t>(files, "hb", {to_bfloat16(-1.0F).bits}, DType::BF16));
    CHECK(half.max_absolute == 3.0);
    CHECK(compare(save_values<std::uint16_t>(files, "fa", {to_float16(2.0F).bits}, DType::F16),
                  save_values<std::uint16_t>(files, "fb", {to_float16(1.0F).bits}, DType::F16))
              .max_absolute == 1.0);
    CHECK(compare(save_values<std::int64_t>(files, "ia", {-5}, DType::I64),
                  save_values<std::int64_t>(files, "ib", {5}, DType::I64))
              .max_absolute == 10.0);
}

TEST_CASE("a damaged checkpoint is not compared") {
    MemoryFileSystem files;
    const std::string a = save(files, "a", filled(flat_layout(small_tensors(), 1)));
    const std::string b = save(files, "b", filled(flat_layout(small_tensors(), 1), 11));
    files.flip_bit(b + "/r00000.st", 8 * 4200);
    CHECK_THROWS_AS(checkpoint_diff(files, a, b, DiffDepth::Values, OutputFormat::Text), Error);
    files.erase(b + "/COMMIT");
    CHECK_THROWS_AS(checkpoint_diff(files, a, b, DiffDepth::Hashes, OutputFormat::Text), Error);
}
