#include "trainctl/checkpoint/job_places.h"

#include "trainctl/config/tiers.h"
#include "trainctl/rundir/layout.h"

namespace trainctl {

std::vector<Place> checkpoint_places(const std::string& run_dir, const CheckpointSpec& checkpoint) {
    std::vector<Place> places;
    for (const Tier& tier : checkpoint_tiers(checkpoint)) {
        places.push_back(
            {tier.text,
             tier.path.empty() ? RunLayout(run_dir, checkpoint.directory).checkpoints() : tier.path,
             tier.kind == TierKind::Local ? Reach::Node : Reach::Everybody});
    }
    return places;
}

}  // namespace trainctl
