#include "cli/external_check.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/checkpoint_places.h"
#include "cli/checkpoint_space.h"
#include "cli/initial_weights.h"
#include "cli/rank_device.h"
#include "cli/run_places.h"
#include "trainctl/base/error.h"
#include "trainctl/base/text.h"
#include "trainctl/config/batch.h"
#include "trainctl/data/preflight.h"
#include "trainctl/device/affinity.h"
#include "trainctl/device/cuda_device.h"
#include "trainctl/ops/backends.h"
#include "trainctl/rundir/layout.h"
#include "trainctl/train/memory_need.h"
#include "trainctl/train/training.h"

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

// Whether the path leads through a file as if it were a directory.
bool leads_through_file(FileSystem& files, const std::string& path) {
    std::string above = parent_path(path);
    while (!files.status(above) && above != parent_path(above)) above = parent_path(above);
    const auto status = files.status(above);
    return status && !status->directory;
}

enum class DataFound { Here, Elsewhere, Unusable };

// Looks for the files only. Unusable: the path cannot even be looked up.
DataFound find_data(FileSystem& files, const JobSpec& job, std::vector<Problem>& problems) {
    DataFound found = DataFound::Here;
    for (const auto* sources : {&job.data.train, &job.data.validation}) {
        const std::string key = sources == &job.data.train ? "data.train" : "data.validation";
        for (const DataSource& source : *sources) {
            try {
                if (present(files, source)) continue;
                if (leads_through_file(files, source.path))
                    fail(Exit::BadInput, fmt::format("{}: a part of the path is a file where a directory is "
                                                     "needed; check the path",
                                                     source.path));
            } catch (const Error& error) {
                found = DataFound::Unusable;
                problems.push_back(
                    problem_of(Severity::Error, "data", key, error.what(), {}, Exit::BadInput));
                continue;
            }
            if (found == DataFound::Here) found = DataFound::Elsewhere;
            problems.push_back(
                problem_of(Severity::Unchecked, "data_not_here", key,
                           fmt::format("{} is not on this machine", source.path),
                           "check the path (a relative one begins where trainctl is started); if the data "
                           "are only where the job will run, repeat this there (--strict makes it an "
                           "error)",
                           Exit::BadInput));
        }
    }
    return found;
}

void check_data_here(FileSystem& files, const LoadedJob& loaded, std::optional<std::int64_t> ranks,
                     std::vector<Problem>& problems) {
    const JobSpec& job = loaded.spec;
    if (job.data.train.empty()) return;
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

void check_initial_weights(FileSystem& files, const LoadedJob& loaded, std::vector<Problem>& problems) {
    const std::string& path = loaded.spec.model.init_from;
    if (!loaded.ok() || path.empty()) return;
    try {
        if (!files.status(path)) {
            problems.push_back(problem_of(Severity::Unchecked, "weights_not_here", "model.init_from",
                                          fmt::format("{} is not on this machine", path),
                                          "check the path (a relative one begins where trainctl is started); "
                                          "if it is only where the job "
                                          "will run, repeat this there (--strict makes it an error)",
                                          Exit::BadInput));
            return;
        }
        static_cast<void>(find_initial_weights(files, loaded.spec));
    } catch (const Error& error) {
        problems.push_back(
            problem_of(Severity::Error, "weights", "model.init_from", error.what(), {}, error.code()));
    }
}

void check_places(FileSystem& files, const LoadedJob& loaded, std::vector<Problem>& problems) {
    if (!loaded.usable({"job.run_dir", "checkpoint.directory"}) || loaded.spec.run_dir.empty()) return;
    for (const UnusablePlace& place : unusable_places(files, loaded.spec))
        problems.push_back(
            problem_of(Severity::Error, "not_creatable", place.key, place.what, {}, place.exit));
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
    const RunLayout layout = run_layout(job);
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

// The ranks that were named, or the fewest that the job runs on.
std::int64_t ranks_of(const JobSpec& job, std::optional<std::int64_t> named) {
    return named.value_or(std::max<std::int64_t>(1, job.parallel.data_parallel_size) *
                          job.parallel.tensor_parallel_size * job.parallel.pipeline_parallel_size);
}

std::int64_t processors_here() {
    return static_cast<std::int64_t>(affinity_facts(local_place(), 0).allowed.size());
}

// One rank of each pipeline stage, the largest; Exit::Resource if it is beyond what can be planned.
MemoryNeed largest_need(const JobSpec& job, std::int64_t ranks, CpuDevice& device) {
    const auto backend = make_cpu_ops(device);
    const MeshShape shape = mesh_shape(job.parallel, static_cast<int>(ranks));
    BatchLayout layout;
    layout.global_batch = job.training.global_batch_size;
    layout.micro_batch = job.training.micro_batch_size;
    layout.ranks = shape.data;
    check_layout(layout);
    MemoryNeed largest;
    for (int stage = 0; stage < shape.pipeline; ++stage) {
        const MemoryNeed need = memory_need(job, shape, {0, 0, stage}, layout, backend->ops());
        if (need.bytes() > largest.bytes()) largest = need;
    }
    return largest;
}

// What one rank needs; `train` asks for all ranks of a host together.
void check_memory(const LoadedJob& loaded, std::optional<std::int64_t> ranks,
                  std::vector<Problem>& problems) {
    const JobSpec& job = loaded.spec;
    if (!loaded.ok() || job.training.micro_batch_size <= 0 || job.training.global_batch_size <= 0) return;
    if (job.device.kind == DeviceKind::Cuda) {
        problems.push_back(problem_of(Severity::Unchecked, "memory", "training.micro_batch_size",
                                      "whether the job fits into its GPUs is found when the ranks start", {},
                                      Exit::Resource));
        return;
    }
    try {
        const auto device = make_cpu_device({1, choose_cpu_isa(job.device.cpu_isa)});
        const std::uint64_t available = device->info().memory_bytes;
        const MemoryNeed need = largest_need(job, ranks_of(job, ranks), *device);
        if (need.bytes() <= available) return;
        problems.push_back(problem_of(Severity::Error, "memory", "training.micro_batch_size",
                                      describe_lack_of_memory(need, 1, "this machine", available, job), {},
                                      Exit::Resource));
    } catch (const Error& error) {
        if (error.code() != Exit::Resource) return;  // told with the batch, or found by train
        problems.push_back(problem_of(Severity::Error, "memory", "training.micro_batch_size", error.what(),
                                      {}, Exit::Resource));
    }
}

void check_threads(const LoadedJob& loaded, std::vector<Problem>& problems) {
    const std::int64_t threads = loaded.spec.device.threads;
    const std::int64_t processors = processors_here();
    if (threads <= processors || processors == 0) return;
    problems.push_back(problem_of(
        Severity::Warning, "threads", "device.threads",
        fmt::format("device.threads {} exceeds the {} that this machine allows", threads,
                    counted(processors, "processor")),
        "on such a machine threads would wait for each other; \"auto\" takes the rank's share of its cores",
        Exit::Usage));
}

void check_device(const LoadedJob& loaded, std::vector<Problem>& problems) {
    const JobSpec& job = loaded.spec;
    if (job.device.kind == DeviceKind::Cpu)
        return;  // what contradicts that is a matter of the job file alone
    HostDevices host;
    host.devices = list_cuda_devices(&host.why_none);
    try {
        static_cast<void>(
            choose_device(job.device, job.communication.backend, host, f32_products(job.precision)));
    } catch (const Error& error) {
        problems.push_back(
            problem_of(Severity::Error, "device", "device.kind", error.what(), {}, error.code()));
    }
}

// Why the job must be meant for other machines than this one; nullopt: it may run here.
std::optional<std::string> meant_for_elsewhere(const JobSpec& job, std::optional<std::int64_t> ranks,
                                               DataFound data) {
    if (data == DataFound::Elsewhere) return "its data are not here";
    const std::int64_t needed = ranks_of(job, ranks);
    const std::int64_t processors = processors_here();
    if (processors == 0 || needed <= processors) return std::nullopt;
    return fmt::format("it needs {}, and this machine has {}", counted(needed, "rank"),
                       counted(processors, "processor"));
}

// What is wrong with this machine is no fault of a job for another one.
void excuse(Problem& problem, const std::string& reason) {
    if (problem.severity != Severity::Error) return;
    problem.severity = Severity::Unchecked;
    problem.what = "the machine that will run the job; on this one " + problem.what;
    problem.hint = fmt::format(
        "the job seems to be for another machine: {}. Repeat this there (--strict makes it an error)",
        reason);
}

}  // namespace

std::vector<Problem> external_problems(FileSystem& files, const LoadedJob& job,
                                       std::optional<std::int64_t> ranks) {
    std::vector<Problem> problems;
    DataFound data = DataFound::Unusable;
    if (job.usable({"data.train", "data.validation"})) {
        data = find_data(files, job.spec, problems);
        if (data == DataFound::Here) check_data_here(files, job, ranks, problems);
    }
    check_initial_weights(files, job, problems);
    std::vector<Problem> of_machine;
    check_places(files, job, of_machine);
    if (of_machine.empty()) check_disk(files, job, ranks, of_machine);
    check_threads(job, of_machine);
    check_device(job, of_machine);
    check_memory(job, ranks, of_machine);
    if (const auto reason = meant_for_elsewhere(job.spec, ranks, data))
        for (Problem& problem : of_machine) excuse(problem, *reason);
    problems.insert(problems.end(), of_machine.begin(), of_machine.end());
    return problems;
}

}  // namespace trainctl
