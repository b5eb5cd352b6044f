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

std::string recent_skip_name(std::size_t index) { return fmt::format("recent_skip.{}", index); }

std::int64_t require(const std::map<std::string, std::int64_t>& counters, const std::string& name) {
    const auto at = counters.find(name);
    if (at == counters.end() || at->second < 0) {
        fail(Exit::BadInput, fmt::format("checkpoint has no counter '{}': it cannot be resumed exactly. "
                                         "Resume from another checkpoint "
                                         "(--resume STEP; `trainctl ckpt list` shows them).",
                                         name));
    }
    return at->second;
}

}  // namespace

void Progress::advance(std::int64_t batch_samples, std::int64_t batch_tokens, bool applied) {
    constexpr std::int64_t window = 1000;
    ++step;
    samples += batch_samples;
    tokens += batch_tokens;
    if (applied) {
        ++applied_updates;
        consecutive_skips = 0;
    } else {
        ++skipped;
        ++consecutive_skips;
        recent_skips.push_back(step);
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
    return counters;
}

Progress progress_from_counters(const std::map<std::string, std::int64_t>& counters) {
    Progress progress;
    for (const Counter& counter : counters_of_progress) {
        progress.*counter.member = require(counters, counter.name);
    }
    const std::int64_t skips = require(counters, "recent_skips");
    for (std::int64_t index = 0; index < skips; ++index) {
        progress.recent_skips.push_back(require(counters, recent_skip_name(static_cast<std::size_t>(index))));
    }
    return progress;
}

}  // namespace trainctl
