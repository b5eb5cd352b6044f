#include "cli/profile_option.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include "trainctl/base/error.h"

namespace trainctl {
namespace {

// "A:B", both whole numbers and nothing else.
std::optional<ProfileSteps> steps_of(std::string_view text) {
    ProfileSteps steps;
    const char* end = text.data() + text.size();
    const auto [colon, first] = std::from_chars(text.data(), end, steps.first);
    if (first != std::errc{} || colon == end || *colon != ':') return std::nullopt;
    const auto [rest, last] = std::from_chars(colon + 1, end, steps.last);
    if (last != std::errc{} || rest != end) return std::nullopt;
    return steps;
}

}  // namespace

std::optional<ProfileSteps> parse_profile(const std::string& text, std::int64_t job_steps) {
    if (text.empty()) return std::nullopt;
    constexpr std::string_view prefix = "steps=";
    std::optional<ProfileSteps> steps;
    if (std::string_view(text).substr(0, prefix.size()) == prefix)
        steps = steps_of(std::string_view(text).substr(prefix.size()));
    if (!steps || steps->first < 1 || steps->first > steps->last || steps->last > job_steps) {
        fail(Exit::Usage,
             fmt::format("--profile: expected steps=A:B with 1 <= A <= B <= {} (job.steps), found "
                         "\"{}\"; for example --profile steps={}:{}",
                         job_steps, text, std::min<std::int64_t>(10, job_steps),
                         std::min<std::int64_t>(12, job_steps)));
    }
    return steps;
}

std::unique_ptr<ProfileRecorder> start_profile(RankContext& context, Rank& rank, const ProfileSteps& steps,
                                               const RunLayout& layout, int attempt) {
    const int number = context.world.rank();
    ProfileFile file{context.invocation.files, layout.profile(attempt),
                     fmt::format("rank-{}.trace.json", number), number, context.world.host()};
    auto recorder = std::make_unique<ProfileRecorder>(steps, std::move(file), context.invocation.clock,
                                                      context.log, rank.ranges);
    rank.ranges = recorder.get();
    return recorder;
}

void warn_passed_steps(Log& log, const ProfileSteps& steps, std::int64_t step) {
    if (steps.first > step) return;
    log.warn(
        steps.last <= step
            ? fmt::format("--profile steps={}:{}: the run resumes behind step {}, so nothing is profiled",
                          steps.first, steps.last, step)
            : fmt::format("--profile steps={}:{}: the run resumes behind step {}, so only steps {} to {} are "
                          "profiled",
                          steps.first, steps.last, step, step + 1, steps.last));
}

}  // namespace trainctl
