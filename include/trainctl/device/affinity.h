// Which processors a rank computes on. Everything the job may use is shared evenly by the ranks of a host;
// ranks that use GPUs get their share of what is near theirs, where that is known of all and enough for all.
// A binding that the user asked for (taskset, mpirun --bind-to, srun --cpu-bind) is kept, and only OpenMPI's
// silent default, which ties `mpirun -n 1` to one core, is widened to the rank's share.
#pragma once

#include <string>
#include <vector>

namespace trainctl {

using CpuList = std::vector<int>;  // operating system numbers of logical processors, ascending

// Index of this rank among those of its host.
struct LocalPlace {
    int rank = 0;
    int size = 1;
};
// As the launcher's environment tells it (OpenMPI, Slurm, MPICH); {0, 1} without one. Usable before MPI_Init.
LocalPlace local_place();

enum class LauncherBinding {
    None,           // no launcher, or one that did not bind this process
    SilentDefault,  // OpenMPI bound it without being asked to
    Requested,      // the user chose a binding or a mapping
    Unbound,        // the user chose "no binding"
};

// Where a GPU hangs on the machine.
struct GpuPlace {
    std::string pci_bus;  // "0000:17:00.0"
    CpuList near;         // processors of its NUMA node, whether the job may use them or not; empty: unknown
    int numa_node = -1;   // -1: unknown, or near to several
};

// What planning depends on; plain data, so that any machine can be made up.
struct AffinityFacts {
    std::vector<CpuList>
        cores;  // logical processors of each physical core, neighbours in the machine adjacent
    std::vector<CpuList> domains;  // of each NUMA node or package: what a default binding may consist of
    CpuList allowed;               // of the job on this host: cgroup, launcher's own affinity
    CpuList bound;                 // affinity this process was started with
    LauncherBinding launcher = LauncherBinding::None;
    double cpu_quota = 0.0;  // processors' worth of time for all ranks of the host; 0: no limit
    LocalPlace place;
    int wanted_threads = 0;      // device.threads; 0: one per core of the share
    std::vector<GpuPlace> gpus;  // of every rank of this host, by local rank; empty: they compute on the cpu
};

struct AffinityPlan {
    CpuList cpus;      // affinity to set
    int threads = 1;   // compute threads
    std::string text;  // "2 threads on cpus 0-1: ..." for the banner
};

// Pure.
AffinityPlan plan_affinity(const AffinityFacts& facts);

// The same GPUs with their places, as hwloc knows them. `topology` (for tests): an XML file written by lstopo
// instead of this machine.
std::vector<GpuPlace> find_gpus(const std::vector<std::string>& pci_buses, const std::string& topology = {});

// Looks at this machine and this process, but for GPUs. Must run before apply_affinity and before threads are
// started.
AffinityFacts affinity_facts(LocalPlace place, int wanted_threads);
// Binds the calling thread and all threads it starts later. Must precede the first OpenMP region. A refusal
// by the kernel is no error: the plan's text says so.
void apply_affinity(AffinityPlan& plan);

// "0-3,8"
std::string format_cpus(const CpuList& cpus);

}  // namespace trainctl
