// Private to the room: every checkpoint of a run in all its places, replicas of one checkpoint put together.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "trainctl/checkpoint/place.h"
#include "trainctl/checkpoint/scan.h"
#include "trainctl/comm/rank_link.h"

namespace trainctl {

// Where the bytes of one checkpoint are. Replicas have the same directory name and the same MANIFEST.
struct Replicas {
    std::vector<std::size_t> places;  // indices, nearest first; of Reach::Node: at least one node has a part
    // Of Reach::Node, for each payload file: ranks that lead the nodes which have it, in full length.
    std::map<std::string, std::vector<int>> holders;
};

struct Catalogue {
    CheckpointScan scan;
    std::vector<Replicas> replicas;   // of scan.complete
    std::vector<std::string> damage;  // replicas and places that are no use, where another one is
};

// What this process sees. Of Reach::Node: where this node has MANIFEST and COMMIT.
Catalogue visible_checkpoints(FileSystem& files, const std::vector<Place>& places, const std::string& run_id);

// Collective. At rank 0 what all ranks see together; elsewhere nothing. A place that cannot be listed is
// damage, unless it is the first: Exit::BadInput.
Catalogue gather_checkpoints(FileSystem& files, const std::vector<Place>& places, const Nodes& nodes,
                             const std::string& run_id, RankLink& link);

}  // namespace trainctl
