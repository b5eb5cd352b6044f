// `trainctl ckpt copy|restore`.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "checkpoint/find_checkpoint.h"
#include "checkpoint/find_root.h"
#include "checkpoint/replica.h"
#include "checkpoint/run_hold.h"
#include "checkpoint/verify_payload.h"
#include "trainctl/base/error.h"
#include "trainctl/base/text.h"

namespace trainctl {
namespace {

using Json = nlohmann::ordered_json;

std::string what_was_there(ReplicaState state) {
    switch (state) {
        case ReplicaState::Absent:
            return "nothing was there";
        case ReplicaState::Incomplete:
            return "what an interrupted copy left there was completed";
        case ReplicaState::Damaged:
            return "what was there was damaged, and only that was replaced";
        case ReplicaState::Complete:
            return "it was there already, and every byte of it is right";
    }
    return "";
}

std::string_view state_name(ReplicaState state) {
    switch (state) {
        case ReplicaState::Absent:
            return "absent";
        case ReplicaState::Incomplete:
            return "incomplete";
        case ReplicaState::Damaged:
            return "damaged";
        case ReplicaState::Complete:
            return "complete";
    }
    return "";
}

CommandResult answer(const FoundCheckpoint& source, const ReplicaPlan& plan, Execution execution,
                     OutputFormat form) {
    const Manifest& manifest = source.committed.manifest;
    const bool dry = execution == Execution::DryRun;
    const std::string written =
        fmt::format("{} of {} ({})", plan.lacking.size(), counted(manifest.files.size(), "file"),
                    format_bytes(plan.lacking_bytes(manifest)));
    const std::string text =
        dry ? fmt::format("{}: step {} from {}: {} would be written; what is there now: {}\n", plan.path,
                          manifest.step, source.path, written, state_name(plan.state))
            : fmt::format("{}: step {} from {}: {} written and checked; {}\n", plan.path, manifest.step,
                          source.path, written, what_was_there(plan.state));
    const Json document{{"from", source.path},
                        {"to", plan.path},
                        {"step", manifest.step},
                        {"was", state_name(plan.state)},
                        {"files", plan.lacking.size()},
                        {"bytes", plan.lacking_bytes(manifest)},
                        {"dry_run", dry}};
    return {Exit::Ok, in_format(form, text, document.dump(2, ' ', false, Json::error_handler_t::replace)),
            ""};
}

// The replica is where the source is: there is nothing to copy from.
void require_two_places(const FoundCheckpoint& source, const ReplicaPlan& plan) {
    if (source.path == plan.path)
        fail(Exit::Usage, fmt::format("{} would be copied to itself: choose another directory", source.path));
}

void replicate(FileSystem& files, const FoundCheckpoint& source, const std::string& root,
               const ReplicaPlan& plan, const std::function<void()>& fence) {
    try {
        make_replica(files, source.path, source.committed, root, plan, fence);
    } catch (const Error& error) {
        if (error.code() != Exit::BadInput) throw;
        settle_mark(files, source.path, "ckpt copy", {error.what()});
        fail(Exit::BadInput,
             fmt::format("{}: {}. Nothing complete was left in {}; copy another replica or step", source.path,
                         error.what(), plan.path));
    }
}

}  // namespace

CommandResult checkpoint_copy(FileSystem& files, const CopyOptions& options) {
    const FoundCheckpoint source = find_checkpoint(files, options.from, options.step);
    const std::string root = without_trailing_slash(options.to);
    const ReplicaPlan plan = plan_replica(files, source.committed, root);
    require_two_places(source, plan);
    if (options.execution == Execution::Real) replicate(files, source, root, plan, {});
    return answer(source, plan, options.execution, options.form);
}

CommandResult checkpoint_restore(const RunServices& services, const CopyOptions& options) {
    FileSystem& files = services.files;
    const RunPlace place = find_run(files, options.to);
    std::unique_ptr<RunHold> hold;
    if (options.execution == Execution::Real) hold = std::make_unique<RunHold>(services, place);
    const FoundCheckpoint source = find_checkpoint(files, options.from, options.step, place.layout.root());
    const Manifest& manifest = source.committed.manifest;
    if (manifest.run_id != place.identity.run_id) {
        fail(Exit::BadInput,
             fmt::format("{} is of run {}, and {} is run {}: its checkpoints cannot be restored there",
                         source.path, manifest.run_id, place.layout.root(), place.identity.run_id));
    }
    const std::string& root = place.layout.checkpoints();
    const ReplicaPlan plan = plan_replica(files, source.committed, root);
    require_two_places(source, plan);
    if (!hold) return answer(source, plan, options.execution, options.form);
    replicate(files, source, root, plan, [&] { hold->confirm(); });
    const std::string how = "restored from " + source.path;
    if (plan.state != ReplicaState::Complete)
        hold->note(JournalEvent::Commit, manifest.step, manifest.directory, how);
    hold->note(JournalEvent::Verify, manifest.step, manifest.directory, how);
    return answer(source, plan, options.execution, options.form);
}

}  // namespace trainctl
