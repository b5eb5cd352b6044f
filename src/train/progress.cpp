#include "trainctl/train/progress.h"

#include <fmt/format.h>

#include <array>

#include "trainctl/base/error.h"

namespace trainctl {
namespace {

struct Counter {
    const char* name;
    std::int64_t Progress::*member;
};

constexpr std::array counters_of_progress = {
    Counter{"step", &Progress::step},       Counter{"samples", &Progress::samples},
    Counter{"tokens", &Progress::tokens},   Counter{"applied_updates", &Progress::applied_updates},
    Counter{"skipped", &Progress::skipped}, Counter{"consecutive_skips", &Progress::consecutive_skips},
};

constexpr const char* scale_name = "loss_scale";
constexpr const char* good_steps_name = "loss_scale.good_steps";
constexpr const char* hysteresis_name = "loss_scale.hysteresis_left";

std::string recent_skip_name(std::size_t index) { return fmt::format("recent_skip.{}", index); }

template <class Number>
Number require(const std::map<std::string, Number>& stored, const std::string& name) {
    const auto at = stored.find(name);
    if (at == stored.end() || !(at->second >= 0)) {
        fail(Exit::BadInput, fmt::format("checkpoint has no counter '{}': it cannot be resumed exactly. "
                                         "Resume from another checkpoint "
                                         "(--resume STEP; `trainctl ckpt list` shows them).",
                                         name));
    }
    return at->second;
}

}  // namespace

void Progress::advance(std::int64_t batch_samples, std::int64_t batch_tokens, StepOutcome outcome,
                       const std::optional<LossScale>& next_loss_scale) {
    constexpr std::int64_t window = 1000;
    ++step;
    samples += batch_samples;
    tokens += batch_tokens;
    loss_scale = next_loss_scale;
    switch (outcome) {
        case StepOutcome::Applied:
            ++applied_updates;
            consecutive_skips = 0;
            break;
        case StepOutcome::Overflow:
            ++skipped;
            break;
        case StepOutcome::NonFinite:
            ++skipped;
            ++consecutive_skips;
            recent_skips.push_back(step);
            break;
    }
    std::erase_if(recent_skips, [this](std::int64_t skip) { return skip <= step - window; });
}

std::map<std::string, std::int64_t> to_counters(const Progress& progress) {
    std::map<std::string, std::int64_t> counters;
    for (const Counter& counter : counters_of_progress) counters[counter.name] = progress.*counter.member;
    counters["recent_skips"] = std::ssize(progress.recent_skips);
    for (std::size_t index = 0; index < progress.recent_skips.size(); ++index) {
        counters[recent_skip_name(index)] = progress.recent_skips[index];
    }
    if (progress.loss_scale) {
        counters[good_steps_name] = progress.loss_scale->good_steps;
        counters[hysteresis_name] = progress.loss_scale->hysteresis_left;
    }
    return counters;
}

std::map<std::string, double> to_scalars(const Progress& progress) {
    if (!progress.loss_scale) return {};
    return {{scale_name, progress.loss_scale->scale}};
}

Progress progress_from_checkpoint(const std::map<std::string, std::int64_t>& counters,
                                  const std::map<std::string, double>& scalars) {
    Progress progress;
    for (const Counter& counter : counters_of_progress) {
        progress.*counter.member = require(counters, counter.name);
    }
    const std::int64_t skips = require(counters, "recent_skips");
    for (std::int64_t index = 0; index < skips; ++index) {
        progress.recent_skips.push_back(require(counters, recent_skip_name(static_cast<std::size_t>(index))));
    }
    if (scalars.contains(scale_name) || counters.contains(good_steps_name) ||
        counters.contains(hysteresis_name)) {
        progress.loss_scale = LossScale{require(scalars, scale_name), require(counters, good_steps_name),
                                        require(counters, hysteresis_name)};
    }
    return progress;
}

}  // namespace trainctl
