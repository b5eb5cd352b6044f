#include "cli/external_check.h"

#include <fmt/format.h>

#include "cli/checkpoint_space.h"
#include "trainctl/base/error.h"
#include "trainctl/config/batch.h"
#include "trainctl/data/preflight.h"
#include "trainctl/device/affinity.h"
#include "trainctl/rundir/layout.h"

namespace trainctl {
namespace {

Problem problem_of(Severity severity, const std::string& code, const std::string& key,
                   const std::string& what, const std::string& hint, Exit exit) {
    Problem problem;
    problem.severity = severity;
    problem.code = code;
    problem.key = key;
    problem.what = what;
    problem.hint = hint;
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

void check_data_here(FileSystem& files, const LoadedJob& loaded, std::optional<std::int64_t> ranks,
                     std::vector<Problem>& problems) {
    const JobSpec& job = loaded.spec;
    if (!loaded.usable({"data.train", "data.validation"})) return;
    bool all_present = true;
    for (const auto* sources : {&job.data.train, &job.data.validation}) {
        for (const DataSource& source : *sources) {
            if (present(files, source)) continue;
            all_present = false;
            problems.push_back(problem_of(Severity::Unchecked, "data_not_here",
                                          sources == &job.data.train ? "data.train" : "data.validation",
                                          fmt::format("{} is not on this machine", source.path),
                                          "check the path; if the data are only where the job will run, "
                                          "repeat this there (--strict makes it an "
                                          "error)",
                                          Exit::BadInput));
        }
    }
    if (!all_present || job.data.train.empty()) return;
    if (!loaded.usable({"data.validation_split", "data.format", "data.dtype", "training.sequence_length",
                        "model.max_sequence_length", "model.vocab_size", "model.preset"}) ||
        job.training.sequence_length == 0 || job.model.vocab_size == 0)
        return;
    try {
        const Corpus corpus(files, job.data, {job.training.sequence_length, job.model.vocab_size, job.seed});
        const bool batch_known =
            loaded.usable({"training.global_batch_size", "training.micro_batch_size",
                           "training.gradient_accumulation_steps", "training.eval_interval",
                           "parallel.tensor_parallel_size", "parallel.pipeline_parallel_size",
                           "parallel.data_parallel_size", "job.steps", "job.tokens"}) &&
            job.training.global_batch_size != 0;
        if (!batch_known) return;
        const std::int64_t readers =
            ranks ? data_parallel_ranks(job.parallel, *ranks).value() : job.parallel.data_parallel_size;
        if (readers == 0) return;
        for (const std::string& warning : check_data(corpus, job, readers).warnings) {
            problems.push_back(
                problem_of(Severity::Warning, "data", "data.train", warning, {}, Exit::BadInput));
        }
    } catch (const Error& error) {
        problems.push_back(problem_of(Severity::Error, "data", "data.train", error.what(), {}, error.code()));
    }
}

void check_disk(FileSystem& files, const LoadedJob& loaded, std::optional<std::int64_t> ranks,
                std::vector<Problem>& problems) {
    const JobSpec& job = loaded.spec;
    const ModelSpec& model = job.model;
    const bool known = loaded.usable({"model.preset", "model.architecture", "model.layers",
                                      "model.hidden_size", "model.heads", "model.kv_heads", "model.head_dim",
                                      "model.ffn_size", "model.vocab_size", "model.max_sequence_length",
                                      "training.sequence_length", "job.run_dir", "checkpoint.directory",
                                      "checkpoint.keep_latest", "checkpoint.keep_every"}) &&
                       model.layers > 0 && model.head_dim > 0 && model.vocab_size > 0 && !job.run_dir.empty();
    if (!known) return;
    const RunLayout layout(job.run_dir, job.checkpoint.directory);
    try {
        const SpaceNeed need = checkpoint_space(files, job, ranks.value_or(1));
        if (const auto lack = lack_of_space(files, layout.checkpoints(), need)) {
            problems.push_back(
                problem_of(Severity::Error, "disk_space", "checkpoint.directory", *lack, {}, Exit::Resource));
        }
    } catch (const Error& error) {
        problems.push_back(problem_of(Severity::Unchecked, "disk_space", "checkpoint.directory", error.what(),
                                      {}, error.code()));
    }
}

void check_threads(const LoadedJob& loaded, std::vector<Problem>& problems) {
    const std::int64_t threads = loaded.spec.device.threads;
    const auto processors = static_cast<std::int64_t>(affinity_facts(local_place(), 0).allowed.size());
    if (threads <= processors || processors == 0) return;
    problems.push_back(problem_of(
        Severity::Warning, "threads", "device.threads",
        fmt::format("device.threads {} exceeds the {} processors that this machine allows", threads,
                    processors),
        "on such a machine threads would wait for each other; \"auto\" takes the rank's share of its cores",
        Exit::Usage));
}

}  // namespace

std::vector<Problem> external_problems(FileSystem& files, const LoadedJob& job,
                                       std::optional<std::int64_t> ranks) {
    std::vector<Problem> problems;
    check_data_here(files, job, ranks, problems);
    check_disk(files, job, ranks, problems);
    check_threads(job, problems);
    return problems;
}

}  // namespace trainctl
