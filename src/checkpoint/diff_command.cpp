// `trainctl ckpt diff`.
#include <fmt/format.h>

#include <bit>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "checkpoint/diff_values.h"
#include "checkpoint/dtype_names.h"
#include "checkpoint/find_checkpoint.h"
#include "trainctl/base/text.h"
#include "trainctl/checkpoint/commands.h"
#include "trainctl/config/load.h"
#include "trainctl/config/resume.h"

namespace trainctl {
namespace {

using Json = nlohmann::ordered_json;

// One thing that differs: what it is called, and how it is in A and in B; absent: not there.
struct Difference {
    std::string name;
    std::optional<std::string> a;
    std::optional<std::string> b;
    std::optional<ValueDifference> values = {};
};

std::string shown(std::int64_t value) { return std::to_string(value); }
std::string shown(double value) { return fmt::format("{}", value); }
bool same(std::int64_t a, std::int64_t b) { return a == b; }
bool same(double a, double b) { return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b); }

template <class Value>
std::vector<Difference> map_differences(const std::map<std::string, Value>& a,
                                        const std::map<std::string, Value>& b) {
    std::set<std::string> names;
    for (const auto& entry : a) names.insert(entry.first);
    for (const auto& entry : b) names.insert(entry.first);
    std::vector<Difference> differences;
    for (const std::string& name : names) {
        const auto of_a = a.find(name);
        const auto of_b = b.find(name);
        if (of_a != a.end() && of_b != b.end() && same(of_a->second, of_b->second)) continue;
        Difference difference{name, {}, {}};
        if (of_a != a.end()) difference.a = shown(of_a->second);
        if (of_b != b.end()) difference.b = shown(of_b->second);
        differences.push_back(std::move(difference));
    }
    return differences;
}

std::string kind_of(const ManifestTensor& tensor) {
    return fmt::format("{} [{}]", tensor.dtype, fmt::join(tensor.shape, ", "));
}

std::vector<Difference> tensor_differences(FileSystem& files, const FoundCheckpoint& a,
                                           const FoundCheckpoint& b, DiffDepth depth) {
    std::vector<Difference> differences;
    for (const ManifestTensor& tensor : a.committed.manifest.tensors) {
        const ManifestTensor* other = b.committed.manifest.find(tensor.name);
        Difference difference{tensor.name, kind_of(tensor), {}};
        if (other != nullptr) {
            difference.b = kind_of(*other);
            const bool comparable = difference.a == difference.b;
            if (comparable && tensor.hash == other->hash) continue;
            if (comparable && depth == DiffDepth::Values && parse_safetensors_dtype(tensor.dtype))
                difference.values = compare_values(files, a.path, a.committed.manifest, b.path,
                                                   b.committed.manifest, tensor.name);
        }
        differences.push_back(std::move(difference));
    }
    for (const ManifestTensor& tensor : b.committed.manifest.tensors) {
        if (a.committed.manifest.find(tensor.name) == nullptr)
            differences.push_back({tensor.name, {}, kind_of(tensor)});
    }
    return differences;
}

std::vector<Difference> job_differences(const Manifest& a, const Manifest& b) {
    if (a.spec == b.spec) return {};
    const LoadedJob of_a = load_job_text(a.spec, "A");
    const LoadedJob of_b = load_job_text(b.spec, "B");
    std::vector<Difference> differences;
    if (of_a.ok() && of_b.ok()) {
        for (const KeyChange& change : compare_for_resume(of_a.spec, of_b.spec))
            differences.push_back({change.key, change.stored, change.wanted});
    } else {
        differences.push_back(
            {"text of the job", "written differently", "not all of it is known to this build"});
    }
    return differences;
}

struct Differences {
    std::vector<Difference> tensors;
    std::vector<Difference> counters;
    std::vector<Difference> scalars;
    std::vector<Difference> layout;  // no part of the state, as the job
    std::vector<Difference> job;

    [[nodiscard]] bool same_state() const { return tensors.empty() && counters.empty() && scalars.empty(); }
};

std::string describe(const ValueDifference& values) {
    std::string text =
        fmt::format("{} of {} differ, at most by {:.6g}, relative {:.6g}", values.differing,
                    counted(values.elements, "element"), values.max_absolute, values.max_relative);
    if (values.not_finite > 0) text += fmt::format("; {} not finite", values.not_finite);
    return text;
}

std::string line_of(const Difference& difference) {
    if (!difference.b) return fmt::format("  {}: {} only in A\n", difference.name, *difference.a);
    if (!difference.a) return fmt::format("  {}: {} only in B\n", difference.name, *difference.b);
    if (difference.a != difference.b)
        return fmt::format("  {}: {} in A, {} in B\n", difference.name, *difference.a, *difference.b);
    return fmt::format("  {}: {}, {}\n", difference.name, *difference.a,
                       difference.values ? describe(*difference.values) : std::string("other contents"));
}

std::string text_of(const FoundCheckpoint& a, const FoundCheckpoint& b, const Differences& found) {
    std::string text;
    for (const auto& [name, side] : {std::pair("A", &a), std::pair("B", &b)})
        text += fmt::format("{}: {} (step {}, state {:016x})\n", name, side->path,
                            side->committed.manifest.step, side->committed.manifest.state_hash);
    for (const auto& [name, list] :
         {std::pair("tensors", &found.tensors), std::pair("counters", &found.counters),
          std::pair("scalars", &found.scalars), std::pair("layout", &found.layout),
          std::pair("job", &found.job)}) {
        if (list->empty()) continue;
        text += fmt::format("{}:\n", name);
        for (const Difference& difference : *list) text += line_of(difference);
    }
    return text + (found.same_state() ? "the same state\n" : "different states\n");
}

Json json_of(const std::vector<Difference>& list) {
    Json entries = Json::array();
    for (const Difference& difference : list) {
        Json entry{{"name", difference.name}};
        entry["a"] = difference.a ? Json(*difference.a) : Json(nullptr);
        entry["b"] = difference.b ? Json(*difference.b) : Json(nullptr);
        if (difference.values) {
            entry["elements"] = difference.values->elements;
            entry["differing"] = difference.values->differing;
            entry["not_finite"] = difference.values->not_finite;
            entry["max_absolute"] = difference.values->max_absolute;
            entry["max_relative"] = difference.values->max_relative;
        }
        entries.push_back(std::move(entry));
    }
    return entries;
}

}  // namespace

CommandResult checkpoint_diff(FileSystem& files, const std::string& path_a, const std::string& path_b,
                              DiffDepth depth, OutputFormat form) {
    const FoundCheckpoint a = find_checkpoint(files, path_a);
    const FoundCheckpoint b = find_checkpoint(files, path_b);
    const Manifest& of_a = a.committed.manifest;
    const Manifest& of_b = b.committed.manifest;
    Differences found;
    found.tensors = tensor_differences(files, a, b, depth);
    found.counters = map_differences(of_a.counters, of_b.counters);
    found.scalars = map_differences(of_a.scalars, of_b.scalars);
    found.layout = map_differences(of_a.layout, of_b.layout);
    found.job = job_differences(of_a, of_b);
    const Exit code = found.same_state() ? Exit::Ok : Exit::BadInput;
    if (form == OutputFormat::Text) return {code, text_of(a, b, found), ""};
    const Json document{{"a", a.path},
                        {"b", b.path},
                        {"same_state", found.same_state()},
                        {"tensors", json_of(found.tensors)},
                        {"counters", json_of(found.counters)},
                        {"scalars", json_of(found.scalars)},
                        {"layout", json_of(found.layout)},
                        {"job", json_of(found.job)}};
    return {code, document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n",
            found.same_state() ? "" : fmt::format("{} and {} hold different states", a.path, b.path)};
}

}  // namespace trainctl
