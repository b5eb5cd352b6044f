#include "trainctl/checkpoint/commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "checkpoint/find_checkpoint.h"
#include "checkpoint/verify_payload.h"
#include "trainctl/base/error.h"
#include "trainctl/base/text.h"
#include "trainctl/checkpoint/resume.h"
#include "trainctl/checkpoint/suspicion.h"
#include "trainctl/rundir/safetensors.h"

namespace trainctl {
namespace {

using Json = nlohmann::ordered_json;

std::string dump(const Json& value) {
    return value.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::int64_t elements_of(const ManifestTensor& tensor) {
    std::int64_t count = 1;
    for (const std::int64_t extent : tensor.shape) count *= extent;
    return count;
}

}  // namespace

CommandResult checkpoint_inspect(FileSystem& files, const std::string& path, OutputFormat form) {
    const FoundCheckpoint found = find_checkpoint(files, path);
    const Manifest& manifest = found.committed.manifest;
    if (form == OutputFormat::Json) {
        // MANIFEST itself is the answer; the path is what it does not know.
        Json document = Json::parse(found.committed.text);
        document["path"] = found.path;
        document["pinned"] = is_pinned(files, found.path);
        return {Exit::Ok, dump(document), ""};
    }
    std::string text = fmt::format(
        "{}\n  run         {}\n  step        {} (attempt {})\n  created     {}\n  health      {}\n"
        "  state hash  {:016x}\n  payload     {} in {}, {} chunks of checksums each\n",
        found.path, manifest.run_id, manifest.step, manifest.attempt, manifest.created,
        health_name(manifest.health), manifest.state_hash, format_bytes(manifest.total_bytes()),
        counted(manifest.files.size(), "file"), format_bytes(manifest.chunk_bytes));
    if (is_pinned(files, found.path)) text += "  pinned      neither removed nor counted by retention\n";
    if (!manifest.data_fingerprint.empty())
        text += fmt::format("  data        {}\n", manifest.data_fingerprint);
    for (const auto& [name, value] : manifest.counters)
        text += fmt::format("  counter     {} = {}\n", name, value);
    for (const auto& [name, value] : manifest.scalars)
        text += fmt::format("  scalar      {} = {}\n", name, value);
    for (const auto& [name, value] : manifest.layout)
        text += fmt::format("  layout      {} = {}\n", name, value);
    text += fmt::format("\n{:<6}  {:>20}  {:>10}  {:>6}  {:<16}  {}\n", "dtype", "shape", "elements",
                        "slices", "hash", "tensor");
    for (const ManifestTensor& tensor : manifest.tensors) {
        text += fmt::format("{:<6}  {:>20}  {:>10}  {:>6}  {:016x}  {}\n", tensor.dtype,
                            fmt::format("[{}]", fmt::join(tensor.shape, ", ")), elements_of(tensor),
                            tensor.slices.size(), tensor.hash, tensor.name);
    }
    if (!manifest.spec.empty()) text += "\n" + manifest.spec + (manifest.spec.back() == '\n' ? "" : "\n");
    return {Exit::Ok, text, ""};
}

CommandResult checkpoint_verify(FileSystem& files, const std::string& path, OutputFormat form) {
    const FoundCheckpoint found = find_checkpoint(files, path);
    const Manifest& manifest = found.committed.manifest;
    const std::vector<std::string> problems = payload_problems(files, found.path, manifest);
    const std::string mark_problem = settle_mark(files, found.path, "ckpt verify", problems);
    const bool ok = problems.empty() && found.newer_damaged.empty();
    const Exit code = ok ? Exit::Ok : Exit::BadInput;
    const std::string verdict =
        problems.empty()
            ? fmt::format("{}: step {} is good: {} in {} read, every checksum right", found.path,
                          manifest.step, format_bytes(manifest.total_bytes()),
                          counted(manifest.files.size(), "file"))
            : fmt::format(
                  "{}: step {} is damaged: {}{}", found.path, manifest.step,
                  counted(problems.size(), "problem"),
                  mark_problem.empty() ? "; marked suspect: retention keeps it and does not count it" : "");
    if (form == OutputFormat::Json) {
        return {code,
                dump({{"path", found.path},
                      {"step", manifest.step},
                      {"ok", ok},
                      {"files", manifest.files.size()},
                      {"bytes", manifest.total_bytes()},
                      {"suspect", read_suspicion(files, found.path).has_value()},
                      {"problems", problems},
                      {"newer_damaged", found.newer_damaged}}),
                problems.empty() ? fmt::format("{}", fmt::join(found.newer_damaged, "; ")) : verdict};
    }
    std::string text;
    for (const std::string& damaged : found.newer_damaged) text += "newer and damaged: " + damaged + "\n";
    for (const std::string& problem : problems) text += problem + "\n";
    return {code, text + verdict + "\n", mark_problem};
}

}  // namespace trainctl
