#include "cli/checkpoint_copies.h"

#include <algorithm>
#include <utility>

#include "cli/checkpoint_places.h"

namespace trainctl {

Nodes nodes_of(const std::vector<std::string>& hosts) {
    std::vector<int> numbers;
    numbers.reserve(hosts.size());
    for (const std::string& host : hosts)
        numbers.push_back(static_cast<int>(std::find(hosts.begin(), hosts.end(), host) - hosts.begin()));
    return Nodes(std::move(numbers));
}

std::unique_ptr<TierCopies> make_copies(RankContext& context, const JobSpec& job, const Nodes& nodes,
                                        const CheckpointStore& store, const std::string& run_id,
                                        std::function<void()> fence) {
    const std::vector<Place> places = checkpoint_places(job);
    std::vector<CopyTarget> targets;
    if (job.checkpoint.peer_copies > 0)
        targets.push_back({CopyTarget::Kind::NextNode, {"the next node", places.front().root, Reach::Node}});
    for (std::size_t index = 1; index < places.size(); ++index)
        targets.push_back({CopyTarget::Kind::Place, places[index]});
    if (targets.empty()) return nullptr;
    CopySettings settings;
    settings.from = places.front();
    settings.nodes = nodes;
    settings.run_id = run_id;
    settings.fence = std::move(fence);
    settings.unwanted = [&store] { return store.unwanted_copies(); };
    return std::make_unique<TierCopies>(context.invocation.files, context.invocation.clock, context.world,
                                        settings, targets);
}

}  // namespace trainctl
