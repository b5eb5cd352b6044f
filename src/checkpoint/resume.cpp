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

// Where to look for what a rollback set aside.
std::string how_to_take_back(std::int64_t step) {
    return fmt::format("`trainctl ckpt rollback RUN --to {}` makes it the current one again", step);
}

ResumeDecision resume_step(std::int64_t step, const CheckpointScan& scan, const Lineage& lineage) {
    ResumeDecision decision;
    for (const std::size_t index : lineage.newest_first(scan.complete)) {
        if (scan.complete[index].name.step == step) decision.candidates.push_back(index);
    }
    if (decision.candidates.empty()) {
        const bool aside = std::any_of(scan.complete.begin(), scan.complete.end(), [&](const auto& found) {
            return found.name.step == step && lineage.set_aside(found.name);
        });
        if (aside) {
            fail(Exit::BadInput,
                 fmt::format("--resume {}: the checkpoint of that step was set aside by the rollback "
                             "to step {}; {}. {}",
                             step, lineage.target_step(), how_to_take_back(step),
                             other_steps(scan, {}, lineage)));
        }
        std::vector<RejectedCheckpoint> of_step;
        for (const RejectedCheckpoint& found : scan.rejected)
            if (found.name.step == step) of_step.push_back(found);
        fail(Exit::BadInput,
             fmt::format("--resume {}: expected a complete checkpoint of that step, found {}. {}{}", step,
                         of_step.empty() ? "none" : "only what cannot be loaded",
                         other_steps(scan, {}, lineage), describe_rejected(of_step)));
    }
    decision.text = fmt::format("resuming from step {} as asked", step);
    return decision;
}

std::string listed_steps(const CheckpointScan& scan, const std::vector<std::size_t>& indices) {
    constexpr std::size_t shown = 8;
    std::string steps;
    for (std::size_t place = 0; place < std::min(shown, indices.size()); ++place) {
        const CompleteCheckpoint& checkpoint = scan.complete[indices[place]];
        steps += fmt::format("{}{}{}", steps.empty() ? "" : ", ", checkpoint.name.step,
                             checkpoint.suspect ? " (suspect)" : "");
    }
    if (indices.size() > shown) steps += fmt::format(" and {} older", indices.size() - shown);
    return steps.empty() ? "none" : steps;
}

// "; set aside by the rollback to step 20: 40, 30"; empty: nothing is.
std::string set_aside_text(const CheckpointScan& scan, const Lineage& lineage) {
    std::vector<std::size_t> aside;
    for (std::size_t index = 0; index < scan.complete.size(); ++index) {
        if (lineage.set_aside(scan.complete[index].name)) aside.push_back(index);
    }
    if (aside.empty()) return {};
    return fmt::format("; set aside by the rollback to step {}: {}", lineage.target_step(),
                       listed_steps(scan, aside));
}

}  // namespace

std::string available_steps(const CheckpointScan& scan, const Lineage& lineage) {
    return listed_steps(scan, lineage.newest_first(scan.complete)) + set_aside_text(scan, lineage);
}

std::string other_steps(const CheckpointScan& scan, const std::vector<std::size_t>& tried,
                        const Lineage& lineage) {
    std::vector<std::size_t> others = lineage.newest_first(scan.complete);
    const auto was_tried = [&](std::size_t index) {
        return std::find(tried.begin(), tried.end(), index) != tried.end();
    };
    others.erase(std::remove_if(others.begin(), others.end(), was_tried), others.end());
    if (others.empty())
        return "No other step is complete: restore a checkpoint from a copy" + set_aside_text(scan, lineage);
    return fmt::format("Complete steps, newest first: {}; ask for one of them, or for --resume auto{}",
                       listed_steps(scan, others), set_aside_text(scan, lineage));
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
    const Lineage lineage(journal);
    if (request.mode == ResumeMode::Step) return resume_step(request.step, scan, lineage);
    if (request.mode == ResumeMode::Never) {
        if (state == RunState::Existing || progress || !scan.complete.empty()) {
            fail(Exit::Usage,
                 fmt::format("this run exists already (complete checkpoints: {}). Continue it with "
                             "--resume auto, or choose another job.run_dir",
                             available_steps(scan, lineage)));
        }
        return {{}, "starting a new run at step 0"};
    }
    ResumeDecision decision;
    decision.candidates = lineage.newest_first(scan.complete);
    if (!decision.candidates.empty()) {
        decision.text =
            fmt::format("resuming from the newest complete checkpoint, step {}{}",
                        scan.complete[decision.candidates.front()].name.step, set_aside_text(scan, lineage));
        return decision;
    }
    if (progress) {
        std::string problems;
        for (const std::string& problem : journal.problems) problems += "\n  journal " + problem;
        fail(Exit::BadInput,
             fmt::format("the run made progress but no checkpoint can be loaded; not starting again at step "
                         "0. Restore a "
                         "checkpoint directory from a copy, or start a new run in another job.run_dir{}{}{}",
                         set_aside_text(scan, lineage), describe_rejected(scan.rejected), problems));
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
