#include "trainctl/checkpoint/lineage.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace trainctl {

Lineage::Lineage(const Journal& journal) {
    std::map<int, CheckpointName> resumed;  // by attempt: what it went on from
    for (const JournalRecord& record : journal.records) {
        const auto name = parse_checkpoint_directory_name(record.directory);
        if (!name) continue;
        if (record.event == JournalEvent::Resume) resumed[record.attempt] = *name;
        if (record.event != JournalEvent::Rollback) continue;
        attempt_ = record.attempt;
        target_ = *name;
    }
    if (!rolled_back()) return;
    CheckpointName at = target_;
    while (true) {
        parts_.push_back({at.attempt, at.step});
        const auto before = resumed.find(at.attempt);
        // An attempt goes on from an earlier one; anything else is no journal of ours.
        if (before == resumed.end() || before->second.attempt >= at.attempt) return;
        at = before->second;
    }
}

bool Lineage::set_aside(const CheckpointName& name) const {
    if (!rolled_back() || after_rollback(name)) return false;
    return std::none_of(parts_.begin(), parts_.end(), [&](const Part& part) {
        return part.attempt == name.attempt && name.step <= part.last;
    });
}

bool Lineage::newer(const CheckpointName& a, const CheckpointName& b) const {
    const bool a_after = after_rollback(a);
    const bool b_after = after_rollback(b);
    return std::tie(a_after, a.step, a.attempt, a.nonce) > std::tie(b_after, b.step, b.attempt, b.nonce);
}

std::vector<std::size_t> Lineage::newest_first(const std::vector<CompleteCheckpoint>& complete) const {
    std::vector<std::size_t> order;
    for (std::size_t index = 0; index < complete.size(); ++index) {
        if (!set_aside(complete[index].name)) order.push_back(index);
    }
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return newer(complete[a].name, complete[b].name); });
    return order;
}

}  // namespace trainctl
