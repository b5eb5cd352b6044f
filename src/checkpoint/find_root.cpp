#include "checkpoint/find_root.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "trainctl/base/error.h"
#include "trainctl/checkpoint/job_places.h"

namespace trainctl {
namespace {

// Anything of ours in it, or nothing at all: then it may be a checkpoint directory before the first save.
bool may_hold_checkpoints(FileSystem& files, const std::string& path) {
    const std::vector<std::string> names = files.list(path);
    return names.empty() || files.status(RunLayout(path).run_json()) ||
           std::any_of(names.begin(), names.end(), [](const std::string& name) {
               return parse_checkpoint_directory_name(name).has_value();
           });
}

}  // namespace

std::optional<LoadedJob> recorded_job(FileSystem& files, const RunLayout& layout) {
    const std::string records = parent_path(layout.record(1));
    int newest = 0;
    if (files.status(records)) {
        for (const std::string& name : files.list(records))
            newest = std::max(newest, parse_attempt_name(name).value_or(0));
    }
    const std::string spec = join_path(layout.record(newest), "spec.toml");
    if (newest == 0 || !files.status(spec)) return std::nullopt;
    return load_job(files, spec);
}

std::string recorded_root(FileSystem& files, const RunLayout& layout) {
    const std::optional<LoadedJob> job = recorded_job(files, layout);
    if (!job || !job->usable({"checkpoint.directory", "checkpoint.tiers"})) return {};
    const std::string root = checkpoint_places(layout.root(), job->spec.checkpoint).front().root;
    return root == layout.checkpoints() ? std::string() : root;
}

std::vector<Place> recorded_places(FileSystem& files, const std::string& path, const std::string& root) {
    std::vector<Place> places{{root, root, Reach::Everybody}};
    const std::optional<LoadedJob> job = recorded_job(files, RunLayout(path));
    if (!job || !job->usable({"checkpoint.directory", "checkpoint.tiers"})) return places;
    places = checkpoint_places(path, job->spec.checkpoint);
    places.front().root = root;
    return places;
}

bool is_checkpoint(FileSystem& files, const std::string& path) {
    return files.status(join_path(path, std::string(commit_file_name))).has_value() ||
           files.status(join_path(path, std::string(manifest_file_name))).has_value();
}

std::string find_checkpoint_root(FileSystem& files, const std::string& path) {
    std::string root = without_trailing_slash(path);
    const auto status = files.status(root);
    if (!status || !status->directory) {
        fail(Exit::BadInput, fmt::format("{} {}; {}. Check the path.", root,
                                         status ? "is a file" : "does not exist", expected_checkpoint_path));
    }
    if (is_checkpoint(files, root)) return parent_path(root);
    const RunLayout layout(root);
    if (files.status(layout.checkpoints()) && !files.list(layout.checkpoints()).empty())
        return layout.checkpoints();
    std::string elsewhere = recorded_root(files, layout);
    if (!elsewhere.empty()) {
        if (files.status(elsewhere)) return elsewhere;
        const bool by_directory = recorded_job(files, layout)->spec.checkpoint.directory == elsewhere;
        fail(Exit::BadInput,
             fmt::format(
                 "the run in {} keeps its checkpoints in {}\"{}\", which is not there "
                 "(a relative path begins where the run was started). Give that directory instead, as it "
                 "is named from here",
                 root, by_directory ? "checkpoint.directory = " : "the first of checkpoint.tiers, ",
                 elsewhere));
    }
    if (files.status(layout.checkpoints())) return layout.checkpoints();
    if (!may_hold_checkpoints(files, root)) {
        fail(Exit::BadInput,
             fmt::format("{} holds neither a run (no run.json) nor checkpoints; {}. Check the path.", root,
                         expected_checkpoint_path));
    }
    return root;
}

std::string no_checkpoints_text(const std::string& root) {
    return fmt::format(
        "no checkpoints in {}. A run saves at checkpoint.interval_steps, at checkpoint.interval, when it is "
        "stopped and at its end; where checkpoint.directory is set, they are there",
        root);
}

std::string without_trailing_slash(std::string path) {
    while (path.size() > 1 && path.back() == '/') path.pop_back();
    return path;
}

}  // namespace trainctl
