// Where checkpoints lie, and who sees what is written there.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace trainctl {

enum class Reach {
    Everybody,  // a shared directory or an object store: what one rank writes all ranks see
    Node,       // a disk of each node: only the ranks of one node see it
};

struct Place {
    std::string name;  // for people, as the job file has it
    std::string root;
    Reach reach = Reach::Everybody;
};

// Which ranks share the disks of a node. Pure data, the same on all ranks.
class Nodes {
  public:
    // All ranks on one node.
    Nodes() = default;
    // `of_rank`: for each rank the number of its node, any numbers.
    explicit Nodes(std::vector<int> of_rank) : of_rank_(std::move(of_rank)) {}

    [[nodiscard]] int of(int rank) const {
        return of_rank_.empty() ? 0 : of_rank_.at(static_cast<std::size_t>(rank));
    }
    // The lowest rank on the node of `rank`: it makes and removes what a node has once.
    [[nodiscard]] int leader_of(int rank) const {
        for (int other = 0; other < rank; ++other)
            if (of(other) == of(rank)) return other;
        return rank;
    }
    // Whether this rank keeps the markers (MANIFEST, COMMIT) of a place with that reach.
    [[nodiscard]] bool keeps_markers(int rank, Reach reach) const {
        return reach == Reach::Everybody ? rank == 0 : leader_of(rank) == rank;
    }

  private:
    std::vector<int> of_rank_;
};

}  // namespace trainctl
