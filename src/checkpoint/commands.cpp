#include "trainctl/checkpoint/commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "checkpoint/find_checkpoint.h"
#include "checkpoint/payload_reader.h"
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

// Problems of one payload file; none if it is right.
std::vector<std::string> verify_file(FileSystem& files, const std::string& path, const Manifest& manifest,
                                     std::size_t index) {
    std::vector<std::string> problems;
    const ManifestFile& file = manifest.files[index];
    const std::string file_path = join_path(path, file.name);
    try {
        ChunkReader(files, {file_path}, file, manifest.chunk_bytes).verify_all();
        const SafetensorsHeader header = read_safetensors_header(files, file_path);
        std::map<std::uint64_t, const SafetensorsEntry*> entries;  // by file offset, the empty ones aside
        for (const SafetensorsEntry& entry : header.tensors) {
            if (entry.begin < entry.end) entries[header.data_offset + entry.begin] = &entry;
        }
        for (const ManifestTensor& tensor : manifest.tensors) {
            for (const ManifestSlice& slice : tensor.slices) {
                if (slice.file != index || slice.flat_begin == slice.flat_end) continue;
                const auto entry = entries.find(slice.offset);
                const std::uint64_t bytes = static_cast<std::uint64_t>(slice.flat_end - slice.flat_begin) *
                                            *safetensors_dtype_bits(tensor.dtype) / 8;
                if (entry == entries.end() || entry->second->dtype != tensor.dtype ||
                    entry->second->end - entry->second->begin != bytes ||
                    entry->second->name.compare(0, tensor.name.size(), tensor.name) != 0) {
                    problems.push_back(
                        fmt::format("{}: MANIFEST has tensor \"{}\" at byte {}, the file does not", file_path,
                                    tensor.name, slice.offset));
                }
            }
        }
    } catch (const Error& error) {
        problems.emplace_back(error.what());
    }
    return problems;
}

// Marks the checkpoint suspect, or takes the mark away. Returns what is to be said if that cannot be written.
std::string settle_mark(FileSystem& files, const std::string& path,
                        const std::vector<std::string>& problems) {
    try {
        if (problems.empty()) {
            clear_suspicion(files, path);
        } else {
            remember_suspicion(files, path, fmt::format("ckpt verify: {}", fmt::join(problems, "; ")));
        }
        return {};
    } catch (const Error& error) {
        return fmt::format("warning: what was found is not remembered: {}\n", error.what());
    }
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
    std::vector<std::string> problems;
    for (std::size_t index = 0; index < manifest.files.size(); ++index) {
        for (std::string& problem : verify_file(files, found.path, manifest, index))
            problems.push_back(std::move(problem));
    }
    const std::string mark_problem = settle_mark(files, found.path, problems);
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
