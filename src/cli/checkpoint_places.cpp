#include "cli/checkpoint_places.h"

#include "trainctl/config/tiers.h"

namespace trainctl {
namespace {

std::string directory_of(const Tier& tier, const JobSpec& job) {
    return tier.path.empty() ? RunLayout(job.run_dir, job.checkpoint.directory).checkpoints() : tier.path;
}

}  // namespace

RunLayout run_layout(const JobSpec& job) {
    return RunLayout(job.run_dir, directory_of(checkpoint_tiers(job.checkpoint).front(), job));
}

std::vector<Place> checkpoint_places(const JobSpec& job) {
    std::vector<Place> places;
    for (const Tier& tier : checkpoint_tiers(job.checkpoint)) {
        places.push_back({tier.text, directory_of(tier, job),
                          tier.kind == TierKind::Local ? Reach::Node : Reach::Everybody});
    }
    return places;
}

}  // namespace trainctl
