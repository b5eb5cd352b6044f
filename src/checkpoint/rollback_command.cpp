// `trainctl ckpt rollback`.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "checkpoint/run_hold.h"
#include "checkpoint/verify_payload.h"
#include "trainctl/base/error.h"
#include "trainctl/checkpoint/lineage.h"
#include "trainctl/checkpoint/resume.h"

namespace trainctl {
namespace {

using Json = nlohmann::ordered_json;

std::optional<std::int64_t> parse_step(const std::string& text) {
    std::int64_t step = -1;
    const char* end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data(), end, step);
    if (parsed.ec != std::errc{} || parsed.ptr != end || step < 0) return std::nullopt;
    return step;
}

// Of several with the step that is asked for, those on the present line are meant.
const CompleteCheckpoint& pick(const CheckpointScan& scan, const Lineage& lineage, const std::string& to) {
    const auto step = parse_step(to);
    std::vector<const CompleteCheckpoint*> fitting;
    for (const CompleteCheckpoint& found : scan.complete) {
        if (step ? found.name.step == *step : found.manifest.directory == to) fitting.push_back(&found);
    }
    const auto aside = std::stable_partition(
        fitting.begin(), fitting.end(),
        [&](const CompleteCheckpoint* found) { return !lineage.set_aside(found->name); });
    if (aside != fitting.begin()) fitting.erase(aside, fitting.end());
    if (fitting.size() == 1) return *fitting.front();
    if (fitting.empty()) {
        fail(Exit::BadInput,
             fmt::format("--to {}: no such complete checkpoint; complete steps, newest first: {}{}", to,
                         available_steps(scan, lineage), describe_rejected(scan.rejected)));
    }
    std::string names;
    for (const CompleteCheckpoint* found : fitting) names += "\n  --to " + found->manifest.directory;
    fail(Exit::Usage,
         fmt::format("--to {}: {} checkpoints have that step; choose one:{}", to, fitting.size(), names));
}

void require_good(FileSystem& files, const CompleteCheckpoint& target, Execution execution) {
    const std::vector<std::string> problems = payload_problems(files, target.path, target.manifest);
    if (execution == Execution::Real) settle_mark(files, target.path, "ckpt rollback", problems);
    if (problems.empty()) return;
    fail(Exit::BadInput,
         fmt::format(
             "{} is damaged, and the run cannot go on from it: {}. Nothing was changed; roll back to another "
             "step, or restore it from a copy (`trainctl ckpt restore`)",
             target.path, fmt::join(problems, "; ")));
}

// The lineage as it will be.
Lineage after(Journal journal, const CompleteCheckpoint& target) {
    JournalRecord record;
    record.event = JournalEvent::Rollback;
    record.directory = target.manifest.directory;
    record.attempt = std::numeric_limits<int>::max();  // later than all that is there
    journal.records.push_back(std::move(record));
    return Lineage(journal);
}

CommandResult answer(const RollbackOptions& options, const CompleteCheckpoint& target, bool current_already,
                     const std::vector<std::string>& set_aside) {
    const bool dry = options.execution == Execution::DryRun;
    std::string text =
        current_already
            ? fmt::format("{} (step {}) is the current checkpoint already: nothing to do\n",
                          target.manifest.directory, target.name.step)
            : fmt::format("{} (step {}) {} the current checkpoint: --resume auto goes on from it\n",
                          target.manifest.directory, target.name.step, dry ? "would become" : "is now");
    for (const std::string& directory : set_aside) text += fmt::format("set aside  {}\n", directory);
    const Json document{{"directory", target.manifest.directory},
                        {"step", target.name.step},
                        {"dry_run", dry},
                        {"current_already", current_already},
                        {"set_aside", set_aside}};
    return {Exit::Ok,
            in_format(options.form, text, document.dump(2, ' ', false, Json::error_handler_t::replace)), ""};
}

}  // namespace

CommandResult checkpoint_rollback(const RunServices& services, const RollbackOptions& options) {
    FileSystem& files = services.files;
    const RunPlace place = find_run(files, options.run);
    std::unique_ptr<RunHold> hold;
    if (options.execution == Execution::Real) hold = std::make_unique<RunHold>(services, place);
    const Journal journal = hold ? hold->history() : read_journal(files, place.layout);
    const CheckpointScan scan = scan_checkpoints(files, place.layout.checkpoints(), place.identity.run_id);
    const Lineage before(journal);
    const CompleteCheckpoint& target = pick(scan, before, options.to);
    const std::vector<std::size_t> order = before.newest_first(scan.complete);
    if (!order.empty() && &scan.complete[order.front()] == &target) return answer(options, target, true, {});
    require_good(files, target, options.execution);
    const Lineage line = after(journal, target);
    std::vector<std::string> set_aside;
    for (const CompleteCheckpoint& found : scan.complete)
        if (line.set_aside(found.name)) set_aside.push_back(found.manifest.directory);
    if (hold) {
        hold->confirm();
        hold->note(JournalEvent::Verify, target.name.step, target.manifest.directory,
                   "read back by ckpt rollback");
        hold->note(JournalEvent::Rollback, target.name.step, target.manifest.directory, "");
    }
    return answer(options, target, false, set_aside);
}

}  // namespace trainctl
