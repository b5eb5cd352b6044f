// `trainctl ckpt prune`: retention at once instead of after the next save.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "checkpoint/run_hold.h"
#include "trainctl/base/error.h"
#include "trainctl/base/text.h"
#include "trainctl/checkpoint/retention.h"
#include "trainctl/checkpoint/suspicion.h"

namespace trainctl {
namespace {

using Json = nlohmann::ordered_json;

RetentionPolicy policy_of(const PruneOptions& options, const RunPlace& place) {
    if (!place.recorded && !options.keep_latest) {
        fail(Exit::BadInput,
             fmt::format(
                 "{} has no record of its job that this build can read, so that checkpoint.keep_latest "
                 "and checkpoint.keep_every are not known; give --keep-latest K",
                 place.layout.root()));
    }
    const CheckpointSpec recorded = place.recorded.value_or(CheckpointSpec{});
    return {options.keep_latest.value_or(recorded.keep_latest),
            options.keep_every.value_or(recorded.keep_every)};
}

// What is to become of one checkpoint.
struct Verdict {
    const CompleteCheckpoint* checkpoint;
    Keep keep;
};

// The checkpoint that the journal saw committed last and nobody deleted, if it has no directory any more:
// such a listing may be short, and is no ground to delete anything.
void require_newest_listed(const CheckpointScan& scan, const Journal& journal, const std::string& root) {
    std::string newest;
    for (const JournalRecord& record : journal.records) {
        if (record.event == JournalEvent::Commit) newest = record.directory;
        if (record.event == JournalEvent::Delete && record.directory == newest) newest.clear();
    }
    const auto named = [&](const auto& found) { return checkpoint_directory_name(found.name) == newest; };
    if (newest.empty() || std::any_of(scan.complete.begin(), scan.complete.end(), named) ||
        std::any_of(scan.rejected.begin(), scan.rejected.end(), named))
        return;
    fail(Exit::BadInput,
         fmt::format(
             "{} does not list {}, the newest checkpoint by the journal: nothing was removed. Either the "
             "storage shows an old state (try again later), or somebody removed it: then the next save "
             "of the run makes prune possible again",
             root, newest));
}

std::vector<Verdict> judge(const RunPlace& place, const RetentionPolicy& policy, const Journal& journal,
                           const CheckpointScan& scan) {
    require_newest_listed(scan, journal, place.layout.checkpoints());
    const std::vector<Keep> keeps = judge_retention(retention_items(scan.complete, journal), policy);
    std::vector<Verdict> verdicts;
    for (std::size_t index = 0; index < keeps.size(); ++index) {
        verdicts.push_back({&scan.complete[index], keeps[index]});
    }
    return verdicts;
}

void remove(RunHold& hold, FileSystem& files, const RunPlace& place, std::vector<Verdict>& verdicts) {
    for (std::size_t left = verdicts.size(); left > 0; --left) {  // oldest first
        Verdict& verdict = verdicts[left - 1];
        const CompleteCheckpoint& found = *verdict.checkpoint;
        if (verdict.keep != Keep::Not) continue;
        hold.confirm();
        if (is_pinned(files, found.path)) {  // at this moment
            verdict.keep = Keep::Pinned;
            continue;
        }
        remove_checkpoint(files, place.layout.checkpoints(), found.manifest.directory);
        hold.note(JournalEvent::Delete, found.name.step, found.manifest.directory, "ckpt prune");
    }
}

std::string text_of(const std::vector<Verdict>& verdicts, const RetentionPolicy& policy,
                    const RunPlace& place, Execution execution) {
    std::string text =
        fmt::format("{}: keep_latest {}, keep_every {}\n", place.layout.checkpoints(), policy.keep_latest,
                    policy.keep_every > 0 ? std::to_string(policy.keep_every) : std::string("none"));
    std::size_t gone = 0;
    std::uint64_t bytes = 0;
    for (const Verdict& verdict : verdicts) {
        const Manifest& manifest = verdict.checkpoint->manifest;
        const bool goes = verdict.keep == Keep::Not;
        text += fmt::format("{:<6}  {}  {}\n", goes ? "remove" : "keep", manifest.directory,
                            keep_reason(verdict.keep));
        if (!goes) continue;
        ++gone;
        bytes += manifest.total_bytes();
    }
    return text + fmt::format("{} of {}, {}\n",
                              counted(gone,
                                      execution == Execution::DryRun ? "checkpoint would be removed"
                                                                     : "checkpoint removed",
                                      execution == Execution::DryRun ? "checkpoints would be removed"
                                                                     : "checkpoints removed"),
                              verdicts.size(), format_bytes(bytes));
}

std::string json_of(const std::vector<Verdict>& verdicts, const RetentionPolicy& policy,
                    const RunPlace& place, Execution execution) {
    Json list = Json::array();
    for (const Verdict& verdict : verdicts) {
        const Manifest& manifest = verdict.checkpoint->manifest;
        list.push_back({{"directory", manifest.directory},
                        {"step", manifest.step},
                        {"bytes", manifest.total_bytes()},
                        {"keep", verdict.keep != Keep::Not},
                        {"reason", keep_reason(verdict.keep)}});
    }
    const Json document{{"root", place.layout.checkpoints()},
                        {"keep_latest", policy.keep_latest},
                        {"keep_every", policy.keep_every},
                        {"dry_run", execution == Execution::DryRun},
                        {"checkpoints", std::move(list)}};
    return document.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

CommandResult checkpoint_prune(const RunServices& services, const PruneOptions& options) {
    FileSystem& files = services.files;
    const RunPlace place = find_run(files, options.run);
    const RetentionPolicy policy = policy_of(options, place);
    std::unique_ptr<RunHold> hold;
    if (options.execution == Execution::Real) hold = std::make_unique<RunHold>(services, place);
    const Journal journal = hold ? hold->history() : read_journal(files, place.layout);
    const CheckpointScan scan = scan_checkpoints(files, place.layout.checkpoints(), place.identity.run_id);
    std::vector<Verdict> verdicts = judge(place, policy, journal, scan);
    if (hold) remove(*hold, files, place, verdicts);
    return {Exit::Ok,
            in_format(options.form, text_of(verdicts, policy, place, options.execution),
                      json_of(verdicts, policy, place, options.execution)),
            ""};
}

}  // namespace trainctl
