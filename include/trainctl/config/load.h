// From text to the resolved job: file, then --set, then everything that follows from them. Problems are
// collected, not thrown, so that one run shows all of them.
#pragma once

#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "trainctl/base/file_system.h"
#include "trainctl/config/job_spec.h"
#include "trainctl/config/problem.h"

namespace trainctl {

// Where a value came from; precedence grows downwards.
enum class Source { Default, Derived, Preset, File, CommandLine };

struct Origin {
    Source source = Source::Default;
    Position at;

    bool operator==(const Origin& other) const = default;
};

// "default", "derived", "preset gpt2-124m", "job.toml:3:7", "--set job.steps=100"
std::string to_string(const Origin& origin);

struct LoadOptions {
    // "section.key=value": a TOML value, else the bare text. Later ones win; all win over the file.
    std::vector<std::string> set;
    // Ranks of the run where they are known. Without them some values stay 0 ("derived at start") and the
    // checks that need them are left out.
    std::optional<std::int64_t> world_size;
};

struct LoadedJob {
    std::string file;                                    // as positions show it
    JobSpec spec;                                        // with errors only the keys that are usable()
    std::map<std::string, Origin, std::less<>> origins;  // by key name; keys that are absent are absent here
    std::vector<Problem> problems;                       // in the order of the text
    std::set<std::string, std::less<>> wrong;            // keys that have part in an error

    [[nodiscard]] bool ok() const { return !has_errors(problems); }
    // Whether none of `keys` has part in an error. What was never given may still be 0 or empty.
    [[nodiscard]] bool usable(std::initializer_list<std::string_view> keys) const;
};

// `file_name` is what positions show. Never throws on bad text, of any kind.
LoadedJob load_job_text(std::string_view text, const std::string& file_name, const LoadOptions& options = {});
// A missing, unreadable or too large file is a problem like any other (exit 2: the job file is part of the
// command).
LoadedJob load_job(FileSystem& files, const std::string& path, const LoadOptions& options = {});

// The job, or Error(Exit::Usage) with all errors as its text.
JobSpec job_or_fail(const LoadedJob& job);

}  // namespace trainctl
