#include "cli/external_check.h"

#include <fmt/format.h>

#include "cli/checkpoint_space.h"
#include "trainctl/base/error.h"
#include "trainctl/data/preflight.h"
#include "trainctl/rundir/layout.h"

namespace trainctl {
namespace {

Problem problem_of(Severity severity, const std::string& code, const std::string& key,
                   const std::string& what, Exit exit) {
    Problem problem;
    problem.severity = severity;
    problem.code = code;
    problem.key = key;
    problem.what = what;
    problem.exit = exit;
    return problem;
}

// A Megatron source is a prefix: either of its files will do as evidence. Of a pattern, its directory.
bool present(FileSystem& files, const DataSource& source) {
    if (is_pattern(source.path)) return files.status(parent_path(source.path)).has_value();
    for (const char* suffix : {"", ".bin", ".idx"}) {
        if (files.status(source.path + suffix)) return true;
    }
    return false;
}

void check_data_here(FileSystem& files, const JobSpec& job, std::optional<std::int64_t> ranks,
                     std::vector<Problem>& problems) {
    bool all_present = true;
    for (const auto* sources : {&job.data.train, &job.data.validation}) {
        for (const DataSource& source : *sources) {
            if (present(files, source)) continue;
            all_present = false;
            problems.push_back(problem_of(
                Severity::Unchecked, "data_not_here",
                sources == &job.data.train ? "data.train" : "data.validation",
                fmt::format("{} is not on this machine: its contents are not checked here", source.path),
                Exit::BadInput));
        }
    }
    if (!all_present || job.data.train.empty()) return;
    try {
        const Corpus corpus(files, job.data, {job.training.sequence_length, job.model.vocab_size, job.seed});
        if (!ranks) return;
        for (const std::string& warning : check_data(corpus, job, *ranks).warnings) {
            problems.push_back(problem_of(Severity::Warning, "data", "data.train", warning, Exit::BadInput));
        }
    } catch (const Error& error) {
        problems.push_back(problem_of(Severity::Error, "data", "data.train", error.what(), error.code()));
    }
}

}  // namespace

std::vector<Problem> external_problems(FileSystem& files, const JobSpec& job,
                                       std::optional<std::int64_t> ranks) {
    std::vector<Problem> problems;
    check_data_here(files, job, ranks, problems);
    const RunLayout layout(job.run_dir, job.checkpoint.directory);
    try {
        const SpaceNeed need = checkpoint_space(files, job, ranks.value_or(1));
        if (const auto lack = lack_of_space(files, layout.checkpoints(), need)) {
            problems.push_back(
                problem_of(Severity::Error, "disk_space", "checkpoint.directory", *lack, Exit::Resource));
        }
    } catch (const Error& error) {
        problems.push_back(problem_of(Severity::Unchecked, "disk_space", "checkpoint.directory", error.what(),
                                      error.code()));
    }
    return problems;
}

}  // namespace trainctl
