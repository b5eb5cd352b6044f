// `--profile steps=A:B`: which steps of a training are profiled, and the recorder that does it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "cli/rank_main.h"
#include "trainctl/config/job_spec.h"
#include "trainctl/rundir/layout.h"
#include "trainctl/train/profile.h"

namespace trainctl {

// An empty text: nothing. Exit::Usage unless it names steps of the job.
std::optional<ProfileSteps> parse_profile(const std::string& text, std::int64_t job_steps);

// Takes its place in front of what the rank tells its ranges to; the rank's trainings must end before it
// does.
std::unique_ptr<ProfileRecorder> start_profile(RankContext& context, Rank& rank, const ProfileSteps& steps,
                                               const RunLayout& layout, int attempt);

// Rank 0, after a resume at `step` finished steps: says which of the steps have passed.
void warn_passed_steps(Log& log, const ProfileSteps& steps, std::int64_t step);

}  // namespace trainctl
