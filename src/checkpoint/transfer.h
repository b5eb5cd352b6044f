// Private to the room: payload files that go from node to node before a load.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/save_messages.h"
#include "trainctl/checkpoint/place.h"
#include "trainctl/comm/rank_link.h"

namespace trainctl {

// At rank 0: which node gives what to which. Every holder of a file is asked once for each node that lacks
// it.
class TransferPlan {
  public:
    // `holders`: Replicas::holders.
    TransferPlan(std::map<std::string, std::vector<int>> holders, Nodes nodes)
        : holders_(std::move(holders)), nodes_(std::move(nodes)) {}

    // For all that `answers` (by rank) lack. Empty if some of it is on no other node that was not asked yet.
    std::vector<Transfer> next(const Manifest& manifest, const std::vector<LoadAnswer>& answers);

  private:
    std::map<std::string, std::vector<int>> holders_;
    Nodes nodes_;
    std::set<std::pair<std::size_t, std::pair<int, int>>> asked_;  // file, holder, node
};

// Collective. `directory`: of the checkpoint, on every node's own disk. Every chunk is verified on both
// sides; a file that cannot be brought is left as it was, which the next attempt to read shows.
void make_transfers(FileSystem& files, const std::string& directory, const Manifest& manifest,
                    const std::vector<Transfer>& transfers, RankLink& link);

}  // namespace trainctl
