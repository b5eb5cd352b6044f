// A small valid job file and shorthands around the loader.
#pragma once

#include <algorithm>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "trainctl/base/error.h"
#include "trainctl/config/load.h"

namespace trainctl::test {

// 13 lines; model "tiny" (4 layers, 64 wide, 4 heads, 2 kv heads).
inline const std::string valid_job = R"([job]
name = "t"
run_dir = "runs/t"
steps = 100

[model]
preset = "tiny"

[data]
train = ["data/text"]

[training]
micro_batch_size = 4
global_batch_size = 16
)";

inline LoadedJob load(const std::string& text, const LoadOptions& options = {}) {
    return load_job_text(text, "job.toml", options);
}

inline LoadedJob load_set(std::vector<std::string> set, std::optional<std::int64_t> world = {}) {
    return load(valid_job, {.set = std::move(set), .world_size = world});
}

// The problem with this code (and key), or a default one whose code is empty.
inline Problem problem(const LoadedJob& job, const std::string& code, const std::string& key = {}) {
    for (const Problem& each : job.problems)
        if (each.code == code && (key.empty() || each.key == key)) return each;
    return {};
}

inline std::size_t count_errors(const LoadedJob& job) {
    return static_cast<std::size_t>(
        std::count_if(job.problems.begin(), job.problems.end(),
                      [](const Problem& each) { return each.severity == Severity::Error; }));
}

}  // namespace trainctl::test
