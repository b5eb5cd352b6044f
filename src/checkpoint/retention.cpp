#include "trainctl/checkpoint/retention.h"

#include <algorithm>
#include <tuple>

namespace trainctl {

std::vector<std::size_t> plan_retention(const std::vector<RetentionItem>& items,
                                        const RetentionPolicy& policy) {
    // What damage was found in is never removed, and does not take the place of one that can be loaded.
    std::vector<std::size_t> order;
    for (std::size_t index = 0; index < items.size(); ++index) {
        if (!items[index].suspect) order.push_back(index);
    }
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {  // newest first, as numbers
        return std::tie(items[a].name.step, items[a].name.attempt, items[a].name.nonce) >
               std::tie(items[b].name.step, items[b].name.attempt, items[b].name.nonce);
    });
    const auto keep_latest = static_cast<std::size_t>(std::max<std::int64_t>(1, policy.keep_latest));
    bool have_verified = false;
    bool have_healthy = false;
    std::vector<std::size_t> removable;
    for (std::size_t place = 0; place < order.size(); ++place) {
        const RetentionItem& item = items[order[place]];
        const bool newest_verified = item.verified && !have_verified;
        const bool newest_healthy = item.healthy && !have_healthy;
        have_verified = have_verified || item.verified;
        have_healthy = have_healthy || item.healthy;
        const bool milestone = policy.keep_every > 0 && item.name.step % policy.keep_every == 0;
        if (place >= keep_latest && !newest_verified && !newest_healthy && !milestone)
            removable.push_back(order[place]);
    }
    std::reverse(removable.begin(), removable.end());
    return removable;
}

void remove_checkpoint(FileSystem& files, const std::string& root, const std::string& directory_name) {
    const std::string path = join_path(root, directory_name);
    if (!files.status(path)) return;
    files.remove_file(join_path(path, std::string(commit_file_name)));
    files.sync_directory(path);
    for (const std::string& name : files.list(path)) files.remove_file(join_path(path, name));
    files.remove_directory(path);
    files.sync_directory(root);
}

}  // namespace trainctl
