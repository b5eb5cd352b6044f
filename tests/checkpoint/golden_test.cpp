// Checkpoints of every released format version, as the product of that time wrote them, stay loadable: they
// lie in golden/v<version>/, each beside EXPECTED.json with every byte that must be found in it.
//
// For a new format version: test_checkpoint "[write_golden]" writes golden/v<version> (a folder that is there
// stays as it is); it is committed together with the change, and the old ones stay.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "checkpoint/dtype_names.h"
#include "checkpoint/save_messages.h"
#include "checkpoint/toy_state.h"
#include "support/catch.h"
#include "support/memory_file_system.h"
#include "support/rank_links.h"
#include "trainctl/base/error.h"
#include "trainctl/checkpoint/commands.h"
#include "trainctl/checkpoint/slice_runs.h"

using namespace trainctl;
using namespace trainctl::test;
using nlohmann::json;

namespace {

constexpr const char* expected_name = "EXPECTED.json";
constexpr int saving_ranks = 3;

std::vector<ToyTensor> golden_tensors() {
    return {{"block.weight", Shape{12, 7}, DType::F32},
            {"block.weight.m", Shape{12, 7}, DType::F32},
            {"half", Shape{3, 5}, DType::BF16},
            {"norm.gain", Shape{7}, DType::F32},
            {"count", Shape{}, DType::I64}};
}

// Plain numbers, so that a reader of EXPECTED.json sees what they are.
void fill_plainly(const NamedSlice& whole) {
    for (std::int64_t index = 0; index < whole.flat.size(); ++index) {
        std::byte* const at =
            whole.view.data + static_cast<std::size_t>(index) * dtype_size(whole.view.dtype);
        if (whole.view.dtype == DType::F32) {
            const float value = 0.375F * static_cast<float>(index) - 10.0F;
            std::memcpy(at, &value, sizeof value);
        } else if (whole.view.dtype == DType::BF16) {
            const auto value = static_cast<std::uint16_t>(0x3F80 + index);  // 1, 1 + 2^-7, ...
            std::memcpy(at, &value, sizeof value);
        } else {
            const std::int64_t value = 1'234'567'890'123;
            std::memcpy(at, &value, sizeof value);
        }
    }
}

SliceSet whole_state() {
    SliceSet all = std::move(flat_layout(golden_tensors(), 1)[0]);
    for (const NamedSlice& slice : all.slices()) fill_plainly(slice);
    return all;
}

// The first tensor as columns, the others in flat parts.
SliceSet part_of(const SliceSet& whole, int rank) {
    SliceSet mine;
    for (const ToyTensor& tensor : golden_tensors()) {
        if (tensor.name == "block.weight") {
            const std::int64_t begin = 7 * rank / saving_ranks;
            const std::int64_t end = 7 * (rank + 1) / saving_ranks;
            Box box = whole_box(tensor.global);
            box.offset[1] = begin;
            box.extent[1] = end - begin;
            mine.add(tensor, box, {0, box.extent.elements()});
        } else {
            const std::int64_t elements = tensor.global.elements();
            const Range flat{elements * rank / saving_ranks, elements * (rank + 1) / saving_ranks};
            if (flat.size() > 0) mine.add(tensor, whole_box(tensor.global), flat);
        }
    }
    for (const NamedSlice& slice : mine.slices()) {
        for (const NamedSlice& from : whole.slices()) {
            if (from.name != slice.name) continue;
            const std::size_t size = dtype_size(slice.view.dtype);
            RunWalker runs(slice.global, slice.box, slice.flat);
            for (Run run; runs.next(run);) {
                std::memcpy(slice.view.data + static_cast<std::size_t>(run.local) * size,
                            from.view.data + static_cast<std::size_t>(run.global) * size,
                            static_cast<std::size_t>(run.length) * size);
            }
        }
    }
    return mine;
}

std::string hex(const NamedSlice& slice) {
    std::string text;
    for (std::size_t at = 0; at < slice.view.bytes(); ++at)
        text += fmt::format("{:02x}", static_cast<unsigned>(slice.view.data[at]));
    return text;
}

json tensors_json(const SliceSet& whole) {
    json tensors = json::array();
    for (const NamedSlice& slice : whole.slices()) {
        tensors.push_back({{"name", slice.name},
                           {"dtype", std::string(safetensors_dtype(slice.view.dtype))},
                           {"shape", extents_of(slice.global)},
                           {"bytes", hex(slice)}});
    }
    return tensors;
}

SliceSet wanted_by(const json& tensors) {
    SliceSet wanted;
    for (const json& tensor : tensors) {
        const Shape shape = shape_of(tensor.at("shape").get<std::vector<std::int64_t>>());
        const std::string dtype = tensor.at("dtype").get<std::string>();
        const DType type = dtype == "F32" ? DType::F32 : dtype == "BF16" ? DType::BF16 : DType::I64;
        REQUIRE(safetensors_dtype(type) == dtype);
        wanted.add({tensor.at("name").get<std::string>(), shape, type}, whole_box(shape),
                   {0, shape.elements()});
    }
    wanted.clear();
    return wanted;
}

}  // namespace

TEST_CASE("checkpoints of every released format version load, to the bit") {
    const auto disk = make_posix_file_system();
    const std::vector<std::string> versions = disk->list(GOLDEN_FOLDER);
    const std::string newest = fmt::format("v{}", manifest_version);
    INFO("run test_checkpoint \"[write_golden]\" and commit what it writes");
    REQUIRE(std::find(versions.begin(), versions.end(), newest) != versions.end());
    for (const std::string& version : versions) {
        INFO(version);
        const std::string folder = join_path(GOLDEN_FOLDER, version);
        const json expected = json::parse(read_text(*disk, join_path(folder, expected_name)));
        const std::string directory = expected.at("directory").get<std::string>();
        MemoryFileSystem files;  // nothing is written to the sources
        for (const std::string& name : disk->list(join_path(folder, directory))) {
            const std::string path = join_path(directory, name);
            files.put(join_path("ck", path), read_text(*disk, join_path(folder, path)));
        }
        ManualClock clock;
        SoloLink solo;
        StoreSettings settings = toy_settings("ck");
        settings.run_id = expected.at("run_id").get<std::string>();
        CheckpointStore store(files, clock, settings, nullptr, {});
        const SliceSet wanted = wanted_by(expected.at("tensors"));
        const LoadReport report = store.load_newest({wanted.slices(), {"consumed_samples"}}, solo);
        CHECK(report.passed_over.empty());
        CHECK(tensors_json(wanted) == expected.at("tensors"));
        CHECK(report.manifest.step == expected.at("step").get<std::int64_t>());
        REQUIRE(report.state_hash);
        CHECK(fmt::format("{:016x}", *report.state_hash) == expected.at("state_hash").get<std::string>());
        CHECK(json(report.manifest.counters) == expected.at("counters"));
        CHECK(report.manifest.scalars.at("loss_scale") == 65536.0);
        CHECK(std::isnan(report.manifest.scalars.at("last_loss")));
        CHECK(checkpoint_verify(files, join_path("ck", directory), OutputFormat::Text).exit == Exit::Ok);
    }
}

TEST_CASE("writes the golden checkpoint of the present format version", "[.][write_golden]") {
    const auto disk = make_posix_file_system();
    const std::string folder = join_path(GOLDEN_FOLDER, fmt::format("v{}", manifest_version));
    REQUIRE_FALSE(disk->status(folder));
    ManualClock clock;
    const SliceSet whole = whole_state();
    SaveReport report;
    run_linked_ranks(saving_ranks, RankOrder::Concurrent, [&](RankLink& link) {
        CheckpointStore store(*disk, clock, toy_settings(folder), nullptr, {});
        const SliceSet mine = part_of(whole, link.rank());
        Snapshot snapshot = toy_snapshot(20, mine);
        snapshot.scalars["last_loss"] = std::numeric_limits<double>::quiet_NaN();
        const SaveReport saved = store.save(snapshot, link).value();
        if (link.rank() == 0) report = saved;
    });
    const json expected{{"directory", report.directory},
                        {"run_id", "run-1"},
                        {"step", 20},
                        {"state_hash", fmt::format("{:016x}", report.state_hash)},
                        {"counters", toy_snapshot(20, whole).counters},
                        {"tensors", tensors_json(whole)}};
    write_text_atomically(*disk, join_path(folder, expected_name), expected.dump(1) + "\n");
}
