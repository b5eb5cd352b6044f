// Where GPUs hang, from the PCI part of hwloc's topology. A topology of its own: looking for devices takes
// longer than looking for cores, and only ranks that use GPUs need it.
#include "device/hwloc_sets.h"

namespace trainctl {
namespace {

void look(hwloc_topology_t topology, GpuPlace& gpu) {
    const hwloc_obj_t device = hwloc_get_pcidev_by_busidstring(topology, gpu.pci_bus.c_str());
    if (device == nullptr) return;
    const hwloc_obj_t home = hwloc_get_non_io_ancestor_obj(topology, device);
    if (home == nullptr) return;
    const bool one_node = hwloc_bitmap_weight(home->nodeset) == 1;
    // A device that the firmware gives no place to is put at the top.
    if (home == hwloc_get_root_obj(topology) && !one_node) return;
    gpu.near = to_list(home->cpuset);
    if (one_node) gpu.numa_node = hwloc_bitmap_first(home->nodeset);
}

}  // namespace

std::vector<GpuPlace> find_gpus(const std::vector<std::string>& pci_buses, const std::string& topology_file) {
    std::vector<GpuPlace> gpus;
    gpus.reserve(pci_buses.size());
    for (const std::string& bus : pci_buses) gpus.push_back({bus, {}, -1});
    if (gpus.empty()) return gpus;
    const auto topology = new_topology();
    if (!topology) return gpus;
    if (!topology_file.empty() && hwloc_topology_set_xml(topology.get(), topology_file.c_str()) != 0)
        return gpus;
    hwloc_topology_set_io_types_filter(topology.get(), HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    // The nodes that the job may not use as well: a GPU of theirs must not look as if it hung elsewhere.
    hwloc_topology_set_flags(topology.get(), HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
    if (hwloc_topology_load(topology.get()) != 0) return gpus;
    for (GpuPlace& gpu : gpus) look(topology.get(), gpu);
    return gpus;
}

}  // namespace trainctl
