#include "trainctl/checkpoint/resume.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "trainctl/base/error.h"
#include "trainctl/base/text.h"

namespace trainctl {
namespace {

bool any_damaged(const CheckpointScan& scan) {
    return std::any_of(scan.rejected.begin(), scan.rejected.end(),
                       [](const RejectedCheckpoint& found) { return found.reason == RejectReason::Damaged; });
}

ResumeDecision resume_step(std::int64_t step, const CheckpointScan& scan) {
    ResumeDecision decision;
    for (std::size_t index = 0; index < scan.complete.size(); ++index) {
        if (scan.complete[index].name.step == step) decision.candidates.push_back(index);
    }
    if (decision.candidates.empty()) {
        std::vector<RejectedCheckpoint> of_step;
        for (const RejectedCheckpoint& found : scan.rejected)
            if (found.name.step == step) of_step.push_back(found);
        fail(Exit::BadInput,
             fmt::format("--resume {}: expected a complete checkpoint of that step, found {}. {}{}", step,
                         of_step.empty() ? "none" : "only what cannot be loaded", other_steps(scan, {}),
                         describe_rejected(of_step)));
    }
    decision.text = fmt::format("resuming from step {} as asked", step);
    return decision;
}

}  // namespace

std::string available_steps(const CheckpointScan& scan) {
    constexpr std::size_t shown = 8;
    std::string steps;
    for (std::size_t index = 0; index < std::min(shown, scan.complete.size()); ++index) {
        const CompleteCheckpoint& checkpoint = scan.complete[index];
        steps += fmt::format("{}{}{}", steps.empty() ? "" : ", ", checkpoint.name.step,
                             checkpoint.suspect ? " (suspect)" : "");
    }
    if (scan.complete.size() > shown) steps += fmt::format(" and {} older", scan.complete.size() - shown);
    return steps.empty() ? "none" : steps;
}

std::string other_steps(const CheckpointScan& scan, const std::vector<std::size_t>& tried) {
    CheckpointScan others;
    for (std::size_t index = 0; index < scan.complete.size(); ++index) {
        if (std::find(tried.begin(), tried.end(), index) == tried.end())
            others.complete.push_back(scan.complete[index]);
    }
    if (others.complete.empty()) return "No other step is complete: restore a checkpoint from a copy";
    return fmt::format("Complete steps, newest first: {}; ask for one of them, or for --resume auto",
                       available_steps(others));
}

ResumeRequest parse_resume(std::string_view text) {
    if (text == "never") return {ResumeMode::Never, -1};
    if (text == "auto") return {ResumeMode::Auto, -1};
    std::int64_t step = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), step);
    if (error != std::errc{} || end != text.data() + text.size() || step < 0) {
        fail(Exit::Usage, fmt::format("--resume: expected never, auto or a step number, found '{}'", text));
    }
    return {ResumeMode::Step, step};
}

std::string describe_rejected(const std::vector<RejectedCheckpoint>& rejected) {
    std::string text;
    for (const RejectedCheckpoint& found : rejected) text += "\n  rejected " + found.text;
    return text;
}

ResumeDecision decide_resume(const ResumeRequest& request, RunState state, const CheckpointScan& scan,
                             const Journal& journal) {
    const bool progress = journal.shows_progress() || any_damaged(scan);
    if (request.mode == ResumeMode::Step) return resume_step(request.step, scan);
    if (request.mode == ResumeMode::Never) {
        if (state == RunState::Existing || progress || !scan.complete.empty()) {
            fail(Exit::Usage,
                 fmt::format("this run exists already (complete checkpoints: {}). Continue it with "
                             "--resume auto, or choose another job.run_dir",
                             available_steps(scan)));
        }
        return {{}, "starting a new run at step 0"};
    }
    ResumeDecision decision;
    for (std::size_t index = 0; index < scan.complete.size(); ++index) decision.candidates.push_back(index);
    if (!decision.candidates.empty()) {
        decision.text =
            fmt::format("resuming from the newest complete checkpoint, step {}", scan.complete[0].name.step);
        return decision;
    }
    if (progress) {
        std::string problems;
        for (const std::string& problem : journal.problems) problems += "\n  journal " + problem;
        fail(Exit::BadInput,
             fmt::format("the run made progress but no checkpoint can be loaded; not starting again at step "
                         "0. Restore a "
                         "checkpoint directory from a copy, or start a new run in another job.run_dir{}{}",
                         describe_rejected(scan.rejected), problems));
    }
    decision.text = fmt::format("{}: no checkpoint was ever committed, starting at step 0",
                                state == RunState::Existing ? "the run exists" : "a new run");
    const auto foreign =
        std::count_if(scan.rejected.begin(), scan.rejected.end(),
                      [](const RejectedCheckpoint& found) { return found.reason == RejectReason::Foreign; });
    if (foreign > 0)
        decision.text += fmt::format(" ({} of other runs ignored)", counted(foreign, "checkpoint"));
    return decision;
}

void check_resume(const ResumeRequest& request, const CheckpointScan& scan, const Journal& journal,
                  const std::function<void(const Manifest&)>& accept) {
    const ResumeDecision decision = decide_resume(request, RunState::Existing, scan, journal);
    if (!decision.candidates.empty()) accept(scan.complete[decision.candidates.front()].manifest);
}

}  // namespace trainctl
