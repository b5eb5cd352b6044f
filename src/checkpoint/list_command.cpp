// `trainctl ckpt list`: every checkpoint in the order of steps, each with its state, and what the states
// mean.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <utility>

#include "checkpoint/catalogue.h"
#include "checkpoint/find_root.h"
#include "checkpoint/run_line.h"
#include "trainctl/base/text.h"
#include "trainctl/checkpoint/commands.h"
#include "trainctl/checkpoint/scan.h"

namespace trainctl {
namespace {

using Json = nlohmann::ordered_json;

struct Listed {
    CheckpointName name;
    std::string_view status;
    std::string reason;  // empty: nothing is wrong
    bool pinned = false;
    bool set_aside = false;
    const Manifest* manifest = nullptr;    // where it can be read
    std::vector<std::string> places = {};  // of a run with several: which have it
};

std::string_view reason_name(RejectReason reason) {
    switch (reason) {
        case RejectReason::Uncommitted:
            return "incomplete";
        case RejectReason::Foreign:
            return "foreign";
        case RejectReason::Damaged:
            return "damaged";
    }
    return "";
}

std::vector<Listed> newest_first(const Catalogue& catalogue, const std::vector<Place>& places,
                                 const RunLine& line) {
    const CheckpointScan& scan = catalogue.scan;
    std::vector<Listed> list;
    for (std::size_t index = 0; index < scan.complete.size(); ++index) {
        const CompleteCheckpoint& found = scan.complete[index];
        const bool set_aside = line.set_aside(found);
        list.push_back({found.name,
                        found.suspect ? "suspect"
                        : set_aside   ? "set aside"
                                      : "complete",
                        found.suspect.value_or(""), found.pinned, set_aside, &found.manifest});
        if (places.size() == 1) continue;
        for (const std::size_t place : catalogue.replicas[index].places)
            list.back().places.push_back(places[place].name);
    }
    for (const RejectedCheckpoint& found : scan.rejected)
        list.push_back({found.name, reason_name(found.reason), found.text, false, false, nullptr});
    std::sort(list.begin(), list.end(), [](const Listed& a, const Listed& b) {
        return std::tie(a.name.step, a.name.attempt, a.name.nonce) >
               std::tie(b.name.step, b.name.attempt, b.name.nonce);
    });
    return list;
}

Json to_json(const Listed& listed) {
    Json entry{{"directory", checkpoint_directory_name(listed.name)},
               {"step", listed.name.step},
               {"attempt", listed.name.attempt},
               {"status", listed.status}};
    if (!listed.reason.empty()) entry["reason"] = listed.reason;
    if (listed.manifest == nullptr) return entry;
    const Manifest& manifest = *listed.manifest;
    entry["pinned"] = listed.pinned;
    entry["set_aside"] = listed.set_aside;
    if (!listed.places.empty()) entry["places"] = listed.places;
    entry["bytes"] = manifest.total_bytes();
    entry["files"] = manifest.files.size();
    entry["health"] = health_name(manifest.health);
    entry["state_hash"] = fmt::format("{:016x}", manifest.state_hash);
    entry["created"] = manifest.created;
    entry["run_id"] = manifest.run_id;
    return entry;
}

std::string row(const Listed& listed) {
    const Manifest* manifest = listed.manifest;
    std::string text = fmt::format("{:>12}  {:>7}  {:<10}  {:>10}  {:<9}  {:<16}  {}\n", listed.name.step,
                                   listed.name.attempt, listed.status,
                                   manifest != nullptr ? format_bytes(manifest->total_bytes()) : "-",
                                   manifest != nullptr ? health_name(manifest->health) : "-",
                                   manifest != nullptr ? fmt::format("{:016x}", manifest->state_hash) : "-",
                                   checkpoint_directory_name(listed.name));
    if (listed.pinned) text += fmt::format("{:>12}  pinned\n", "");
    if (!listed.places.empty()) text += fmt::format("{:>12}  in {}\n", "", fmt::join(listed.places, ", "));
    if (!listed.reason.empty()) text += fmt::format("{:>12}  {}\n", "", listed.reason);
    return text;
}

// What the words in the table mean; only those that occur in it.
std::string legend(const std::vector<Listed>& list) {
    using Meaning = std::pair<std::string_view, std::string_view>;
    constexpr std::array meanings{
        Meaning{"probation",
                "saved; training has not gone on long enough after it to call it good. Loads like any other"},
        Meaning{"incomplete",
                "an interrupted save, or one in progress. Never loaded; the next start or save of its run "
                "removes it, and while no process runs in the run directory it may be deleted"},
        Meaning{
            "suspect",
            "wrong bytes were found in it. Kept and not counted by retention; `trainctl ckpt verify` on it "
            "takes the mark away if every byte is right"},
        Meaning{"damaged",
                "was complete once. Never loaded, counted or removed; delete it when it is of no more use"},
        Meaning{"set aside",
                "by `trainctl ckpt rollback`: no load takes it and retention does not count it. Goes when a "
                "checkpoint that was saved since is healthy; a rollback to it makes it current again"},
        Meaning{"foreign", "of another run: neither loaded nor removed"},
        Meaning{"pinned",
                "by `trainctl ckpt pin`: neither removed nor counted by retention, until `ckpt unpin`"}};
    std::set<std::string_view> used;
    for (const Listed& listed : list) {
        used.insert(listed.status);
        if (listed.pinned) used.insert("pinned");
        if (listed.manifest != nullptr) used.insert(health_name(listed.manifest->health));
    }
    std::string text;
    for (const auto& [word, meaning] : meanings) {
        if (used.count(word) != 0) text += fmt::format("\n{}: {}", word, meaning);
    }
    return text.empty() ? text : text + "\n";
}

}  // namespace

CommandResult checkpoint_list(FileSystem& files, const std::string& path, OutputFormat form) {
    const std::string root = find_checkpoint_root(files, path);
    const std::vector<Place> places = recorded_places(files, path, root);
    const Catalogue catalogue = visible_checkpoints(files, places, "");
    const std::vector<Listed> list = newest_first(catalogue, places, RunLine(files, path));
    if (form == OutputFormat::Json) {
        Json entries = Json::array();
        for (const Listed& listed : list) entries.push_back(to_json(listed));
        Json document{{"root", root}, {"checkpoints", std::move(entries)}};
        if (!catalogue.damage.empty()) document["damaged_replicas"] = catalogue.damage;
        return {Exit::Ok, document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n", ""};
    }
    if (list.empty()) return {Exit::Ok, no_checkpoints_text(root) + "\n", ""};
    std::string text = fmt::format("{:>12}  {:>7}  {:<10}  {:>10}  {:<9}  {:<16}  {}\n", "step", "attempt",
                                   "status", "size", "health", "state hash", "directory");
    for (const Listed& listed : list) text += row(listed);
    for (const std::string& damage : catalogue.damage) text += fmt::format("no use: {}\n", damage);
    return {Exit::Ok, text + legend(list), ""};
}

}  // namespace trainctl
