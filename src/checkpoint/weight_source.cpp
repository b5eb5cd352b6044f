#include "trainctl/checkpoint/weight_source.h"

#include <fmt/format.h>

#include "checkpoint/find_checkpoint.h"
#include "trainctl/base/error.h"
#include "trainctl/config/load.h"
#include "trainctl/config/resume.h"

namespace trainctl {
namespace {

bool may_differ(const std::string& key, const ModelSpec& model) {
    return key == "model.dropout" ||
           (key == "model.max_sequence_length" && model.architecture == Architecture::Llama);
}

}  // namespace

WeightSource find_weight_source(FileSystem& files, const std::string& path) {
    FoundCheckpoint found = find_checkpoint(files, path);
    return {parent_path(found.path), std::move(found.committed.manifest)};
}

void require_same_model(const WeightSource& source, const ModelSpec& model) {
    const Manifest& manifest = source.manifest;
    const std::string where = join_path(source.root, manifest.directory);
    JobSpec stored = job_or_fail(load_job_text(manifest.spec, where + "/MANIFEST"));
    JobSpec wanted = stored;
    wanted.model = model;
    std::string differences;
    for (const KeyChange& change : compare_for_resume(stored, wanted)) {
        if (change.resume == ResumeClass::Refuse && !may_differ(change.key, model))
            differences +=
                fmt::format("\n  {}: {} there, {} in this job", change.key, change.stored, change.wanted);
    }
    if (!differences.empty())
        fail(Exit::Usage,
             fmt::format("model.init_from: {} holds the weights of another model; give [model] the same "
                         "shape, or choose another checkpoint:{}",
                         where, differences));
}

}  // namespace trainctl
