// hwloc's sets and topologies as this room has them. Private to the room.
#pragma once

#include <hwloc.h>

#include <memory>

#include "trainctl/device/affinity.h"

namespace trainctl {

inline CpuList to_list(hwloc_const_cpuset_t set) {
    CpuList cpus;
    if (set == nullptr) return cpus;
    for (int cpu = hwloc_bitmap_first(set); cpu >= 0; cpu = hwloc_bitmap_next(set, cpu)) cpus.push_back(cpu);
    return cpus;
}

struct DestroyTopology {
    void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};

// nullptr if there is no memory for one. Not loaded yet.
inline std::unique_ptr<hwloc_topology, DestroyTopology> new_topology() {
    hwloc_topology_t raw = nullptr;
    if (hwloc_topology_init(&raw) != 0) return nullptr;
    return std::unique_ptr<hwloc_topology, DestroyTopology>(raw);
}

}  // namespace trainctl
