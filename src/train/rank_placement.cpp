#include "trainctl/train/rank_placement.h"

#include <fmt/format.h>

namespace trainctl {

void require_tensor_groups_on_one_host(const std::vector<std::string>& hosts, MeshShape shape) {
    const auto group = static_cast<std::size_t>(shape.tensor);  // neighbours: mesh_place
    for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
        const std::size_t first = rank / group * group;
        if (hosts[rank] == hosts[first]) continue;
        fail(Exit::Usage,
             fmt::format(
                 "ranks {} to {} share every matrix (parallel.tensor_parallel_size {}) but are on "
                 "different hosts: rank {} on {}, rank {} on {}. Start a multiple of {} ranks per host "
                 "in consecutive order (mpirun --map-by slot), lower tensor_parallel_size, or allow it "
                 "with parallel.tensor_across_hosts = true",
                 first, first + group - 1, shape.tensor, first, hosts[first], rank, hosts[rank],
                 shape.tensor));
    }
}

}  // namespace trainctl
