#include "trainctl/checkpoint/retention.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>

#include "trainctl/base/error.h"
#include "trainctl/checkpoint/lineage.h"

namespace trainctl {
namespace {

bool newer(const RetentionItem& a, const RetentionItem& b) {  // as numbers
    return std::tie(a.after_rollback, a.name.step, a.name.attempt, a.name.nonce) >
           std::tie(b.after_rollback, b.name.step, b.name.attempt, b.name.nonce);
}

// What the journal says of checkpoints.
struct Known {
    std::set<std::string> verified;
    std::set<std::string> healthy;
    std::optional<JournalRecord> last_resume;
};

Known known_of(const Journal& journal) {
    Known known;
    for (const JournalRecord& record : journal.records) {
        if (record.event == JournalEvent::Verify || record.event == JournalEvent::Resume) {
            known.verified.insert(record.directory);
        } else if (record.event == JournalEvent::Suspect) {
            known.verified.erase(record.directory);
        } else if (record.event == JournalEvent::Healthy) {
            known.healthy.insert(record.directory);
        }
        if (record.event == JournalEvent::Resume) known.last_resume = record;
    }
    return known;
}

}  // namespace

std::string_view keep_reason(Keep keep) {
    switch (keep) {
        case Keep::Not:
            return "older than those that are kept";
        case Keep::Pinned:
            return "pinned";
        case Keep::Suspect:
            return "suspect: never removed automatically";
        case Keep::SetAside:
            return "set aside by a rollback, until a checkpoint saved since is healthy";
        case Keep::Latest:
            return "one of the newest";
        case Keep::Milestone:
            return "a milestone (keep_every)";
        case Keep::Verified:
            return "the newest that was read back in full";
        case Keep::Healthy:
            return "the newest healthy one";
        case Keep::Origin:
            return "the run goes on from it, and no newer one is verified or healthy";
    }
    return "";
}

std::vector<RetentionItem> retention_items(const std::vector<CompleteCheckpoint>& complete,
                                           const Journal& journal) {
    const Known known = known_of(journal);
    const Lineage lineage(journal);
    std::vector<RetentionItem> items;
    items.reserve(complete.size());
    bool outlived = false;  // something saved since the last resume is known to be good
    for (const CompleteCheckpoint& found : complete) {
        const std::string& directory = found.manifest.directory;
        RetentionItem item;
        item.name = found.name;
        item.verified = known.verified.count(directory) != 0;
        item.healthy = found.manifest.health == Health::Good || known.healthy.count(directory) != 0;
        item.suspect = found.suspect.has_value();
        item.pinned = found.pinned;
        item.set_aside = lineage.set_aside(found.name);
        item.after_rollback = lineage.after_rollback(found.name);
        item.origin = known.last_resume && known.last_resume->directory == directory;
        if (known.last_resume && found.name.attempt >= known.last_resume->attempt)
            outlived = outlived || item.verified || item.healthy;
        items.push_back(item);
    }
    for (RetentionItem& item : items) item.origin = item.origin && !outlived;
    return items;
}

std::vector<Keep> judge_retention(const std::vector<RetentionItem>& items, const RetentionPolicy& policy) {
    std::vector<Keep> verdicts(items.size(), Keep::Not);
    std::vector<std::size_t> order;  // of those that fill a place
    const bool outlived = std::any_of(items.begin(), items.end(), [](const RetentionItem& item) {
        return item.after_rollback && item.healthy && !item.suspect;
    });
    for (std::size_t index = 0; index < items.size(); ++index) {
        const RetentionItem& item = items[index];
        if (item.pinned || item.suspect) {
            verdicts[index] = item.pinned ? Keep::Pinned : Keep::Suspect;
        } else if (item.set_aside) {
            verdicts[index] = outlived ? Keep::Not : Keep::SetAside;
        } else {
            order.push_back(index);
        }
    }
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return newer(items[a], items[b]); });
    const auto keep_latest = static_cast<std::size_t>(std::max<std::int64_t>(1, policy.keep_latest));
    bool have_verified = false;
    bool have_healthy = false;
    for (std::size_t place = 0; place < order.size(); ++place) {
        const RetentionItem& item = items[order[place]];
        Keep& verdict = verdicts[order[place]];
        if (place < keep_latest) {
            verdict = Keep::Latest;
        } else if (policy.keep_every > 0 && item.name.step % policy.keep_every == 0) {
            verdict = Keep::Milestone;
        } else if (item.verified && !have_verified) {
            verdict = Keep::Verified;
        } else if (item.healthy && !have_healthy) {
            verdict = Keep::Healthy;
        } else if (item.origin) {
            verdict = Keep::Origin;
        }
        have_verified = have_verified || item.verified;
        have_healthy = have_healthy || item.healthy;
    }
    return verdicts;
}

std::vector<std::size_t> plan_retention(const std::vector<RetentionItem>& items,
                                        const RetentionPolicy& policy) {
    const std::vector<Keep> verdicts = judge_retention(items, policy);
    std::vector<std::size_t> removable;
    for (std::size_t index = 0; index < items.size(); ++index) {
        if (verdicts[index] == Keep::Not) removable.push_back(index);
    }
    std::sort(removable.begin(), removable.end(),
              [&](std::size_t a, std::size_t b) { return newer(items[b], items[a]); });
    return removable;
}

void remove_checkpoint(FileSystem& files, const std::string& root, const std::string& directory_name) {
    const std::string path = join_path(root, directory_name);
    if (!files.status(path)) return;
    files.remove_file(join_path(path, std::string(commit_file_name)));
    files.sync_directory(path);
    // A file that is still in use somewhere (.nfs*) keeps its directory for a while, and nothing else.
    std::optional<Error> in_the_way;
    for (const std::string& name : files.list(path)) {
        try {
            files.remove_file(join_path(path, name));
        } catch (const Error& error) {
            if (!in_the_way) in_the_way = error;
        }
    }
    if (in_the_way) throw Error(*in_the_way);
    files.remove_directory(path);
    files.sync_directory(root);
}

}  // namespace trainctl
