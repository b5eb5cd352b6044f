#include "trainctl/checkpoint/commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>
#include <utility>

#include "checkpoint/find_checkpoint.h"
#include "checkpoint/find_root.h"
#include "checkpoint/run_line.h"
#include "checkpoint/verify_payload.h"
#include "trainctl/base/error.h"
#include "trainctl/base/text.h"
#include "trainctl/checkpoint/resume.h"
#include "trainctl/checkpoint/suspicion.h"
#include "trainctl/rundir/journal.h"
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

// One replica of a checkpoint, as `inspect` shows it.
struct Replica {
    std::string place;
    std::string path;
    std::optional<std::string> problem;  // it is not complete, or wrong bytes were found in it
};

// Of a run with several places; empty elsewhere.
std::vector<Replica> replicas_of(FileSystem& files, const std::string& run, const FoundCheckpoint& found) {
    std::vector<Replica> replicas;
    const std::vector<Place> places = recorded_places(files, run, parent_path(found.path));
    if (places.size() == 1) return replicas;
    for (const Place& place : places) {
        Replica replica{place.name, join_path(place.root, found.committed.manifest.directory), {}};
        try {
            const Require require = place.reach == Reach::Node ? Require::Markers : Require::AllFiles;
            if (read_committed(files, replica.path, require).text != found.committed.text)
                replica.problem = "MANIFEST is another one";
            if (const auto suspect = read_suspicion(files, replica.path)) replica.problem = *suspect;
        } catch (const Error& error) {
            replica.problem = error.what();
        }
        replicas.push_back(std::move(replica));
    }
    return replicas;
}

// When the journal of the run says that every byte was read back; empty: it does not.
std::string read_back(FileSystem& files, const std::string& run, const Manifest& manifest) {
    std::string when;
    for (const JournalRecord& record : read_journal(files, RunLayout(run)).records) {
        if (record.directory != manifest.directory) continue;
        if (record.event == JournalEvent::Verify) when = record.time;
        if (record.event == JournalEvent::Suspect) when.clear();
    }
    return when;
}

Json to_json(const std::vector<Replica>& replicas) {
    Json list = Json::array();
    for (const Replica& replica : replicas) {
        Json entry{
            {"place", replica.place}, {"path", replica.path}, {"complete", !replica.problem.has_value()}};
        if (replica.problem) entry["problem"] = *replica.problem;
        list.push_back(std::move(entry));
    }
    return list;
}

}  // namespace

CommandResult checkpoint_inspect(FileSystem& files, const std::string& path, OutputFormat form) {
    const FoundCheckpoint found = find_checkpoint(files, path);
    const Manifest& manifest = found.committed.manifest;
    const std::string run = enclosing_run(files, path).value_or(path);
    const std::vector<Replica> replicas = replicas_of(files, run, found);
    const std::string verified = read_back(files, run, manifest);
    if (form == OutputFormat::Json) {
        // MANIFEST itself is the answer; the path is what it does not know.
        Json document = Json::parse(found.committed.text);
        document["path"] = found.path;
        document["pinned"] = is_pinned(files, found.path);
        document["replicas"] = to_json(replicas);
        document["read_back"] = verified.empty() ? Json() : Json(verified);
        return {Exit::Ok, dump(document), ""};
    }
    std::string text = fmt::format(
        "{}\n  run         {}\n  step        {} (attempt {})\n  created     {}\n  health      {}\n"
        "  state hash  {:016x}\n  payload     {} in {}, {} chunks of checksums each\n",
        found.path, manifest.run_id, manifest.step, manifest.attempt, manifest.created,
        health_name(manifest.health), manifest.state_hash, format_bytes(manifest.total_bytes()),
        counted(manifest.files.size(), "file"), format_bytes(manifest.chunk_bytes));
    text += fmt::format("  read back   {}\n", verified.empty() ? "never in full" : "in full, " + verified);
    for (const Replica& replica : replicas)
        text += fmt::format("  replica     {}: {}\n", replica.place, replica.problem.value_or("complete"));
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
