// Where the ranks of a job may run.
#pragma once

#include <string>
#include <vector>

#include "trainctl/comm/world.h"

namespace trainctl {

// hosts: of every rank, by rank. Exit::Usage naming ranks and hosts if a tensor-parallel group is spread over
// several hosts: its ranks exchange activations in every block.
void require_tensor_groups_on_one_host(const std::vector<std::string>& hosts, MeshShape shape);

}  // namespace trainctl
