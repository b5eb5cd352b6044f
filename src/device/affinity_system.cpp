// The part of affinity that looks at and changes the real machine.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <system_error>

#include "device/hwloc_sets.h"
#include "device/system_info.h"
#include "trainctl/device/affinity.h"

namespace trainctl {
namespace {

constexpr int most_cpus = 8192;

struct FreeCpuSet {
    void operator()(cpu_set_t* set) const { CPU_FREE(set); }
};

CpuList affinity_of(pid_t process) {
    const std::unique_ptr<cpu_set_t, FreeCpuSet> set(CPU_ALLOC(most_cpus));
    const std::size_t bytes = CPU_ALLOC_SIZE(most_cpus);
    CPU_ZERO_S(bytes, set.get());
    CpuList cpus;
    if (sched_getaffinity(process, bytes, set.get()) != 0) return cpus;
    for (int cpu = 0; cpu < most_cpus; ++cpu) {
        if (CPU_ISSET_S(static_cast<std::size_t>(cpu), bytes, set.get())) cpus.push_back(cpu);
    }
    return cpus;
}

std::string environment(const char* name) {
    const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): before any thread
    return value == nullptr ? "" : value;
}

std::optional<int> environment_int(const char* name) {
    const std::string text = environment(name);
    char* end = nullptr;
    const std::int64_t value =
        std::strtol(text.c_str(), &end, 10);  // Slurm writes "4(x2)": the first number counts
    if (end == text.c_str() || value < 0 || value > 1'000'000) return std::nullopt;
    return static_cast<int>(value);
}

// mpirun or its daemon on this host, among our ancestors: its affinity is what the user gave the whole job.
std::optional<pid_t> launcher_process() {
    pid_t process = getppid();
    for (int generation = 0; generation < 8 && process > 1; ++generation) {
        // "pid (name) state parent ..."; the name may hold spaces and parentheses
        const std::string stat = read_kernel_text("/proc/" + std::to_string(process) + "/stat");
        const auto open = stat.find('(');
        const auto close = stat.rfind(')');
        if (open == std::string::npos || close == std::string::npos || close + 4 >= stat.size())
            return std::nullopt;
        const std::string name = stat.substr(open + 1, close - open - 1);
        for (const char* launcher : {"mpirun", "mpiexec", "orterun", "orted", "prterun", "prted", "prte"}) {
            if (name == launcher) return process;
        }
        process = static_cast<pid_t>(std::strtol(stat.c_str() + close + 4, nullptr, 10));
    }
    return std::nullopt;
}

LauncherBinding launcher_binding() {
    // orterun hands its own options on to the processes as MCA parameters.
    const std::string policy = environment("OMPI_MCA_hwloc_base_binding_policy");
    if (policy.rfind("none", 0) == 0) return LauncherBinding::Unbound;
    if (!policy.empty() || !environment("OMPI_MCA_rmaps_base_mapping_policy").empty() ||
        !environment("OMPI_MCA_hwloc_base_cpu_list").empty() ||
        !environment("OMPI_MCA_rmaps_rank_file_path").empty()) {
        return LauncherBinding::Requested;
    }
    return environment("OMPI_MCA_orte_bound_at_launch").empty() ? LauncherBinding::None
                                                                : LauncherBinding::SilentDefault;
}

std::vector<CpuList> objects(hwloc_topology_t topology, hwloc_obj_type_t type) {
    std::vector<CpuList> lists;
    hwloc_obj_t object = nullptr;
    while ((object = hwloc_get_next_obj_by_type(topology, type, object)) != nullptr) {
        lists.push_back(to_list(object->cpuset));
    }
    return lists;
}

// Cores, domains and allowed processors; every processor its own core if hwloc cannot tell.
void read_topology(AffinityFacts& facts) {
    const auto topology = new_topology();
    if (topology && hwloc_topology_load(topology.get()) == 0) {
        facts.cores = objects(topology.get(), HWLOC_OBJ_CORE);
        facts.domains = objects(topology.get(), HWLOC_OBJ_NUMANODE);
        for (CpuList& package : objects(topology.get(), HWLOC_OBJ_PACKAGE))
            facts.domains.push_back(std::move(package));
        facts.allowed = to_list(hwloc_topology_get_allowed_cpuset(topology.get()));
    }
    if (facts.allowed.empty()) {
        facts.allowed.resize(static_cast<std::size_t>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN))));
        std::iota(facts.allowed.begin(), facts.allowed.end(), 0);
    }
    if (facts.cores.empty()) {
        for (const int cpu : facts.allowed) facts.cores.push_back({cpu});
    }
}

}  // namespace

LocalPlace local_place() {
    struct Names {
        const char* rank;
        const char* size;
    };
    for (const Names& names :
         {Names{"OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
          Names{"MPI_LOCALRANKID", "MPI_LOCALNRANKS"}, Names{"SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"}}) {
        const auto rank = environment_int(names.rank);
        const auto size = environment_int(names.size);
        if (rank && size && *rank < *size) return {*rank, *size};
    }
    return {};
}

AffinityFacts affinity_facts(LocalPlace place, int wanted_threads) {
    AffinityFacts facts;
    read_topology(facts);
    facts.bound = affinity_of(0);
    facts.launcher = launcher_binding();
    facts.cpu_quota = cgroup_cpu_quota();
    facts.place = place;
    facts.wanted_threads = wanted_threads;
    if (const auto launcher = launcher_process()) {
        const CpuList given = affinity_of(*launcher);
        CpuList both;
        std::set_intersection(facts.allowed.begin(), facts.allowed.end(), given.begin(), given.end(),
                              std::back_inserter(both));
        if (!both.empty()) facts.allowed = both;
    }
    return facts;
}

void apply_affinity(AffinityPlan& plan) {
    const std::unique_ptr<cpu_set_t, FreeCpuSet> set(CPU_ALLOC(most_cpus));
    const std::size_t bytes = CPU_ALLOC_SIZE(most_cpus);
    CPU_ZERO_S(bytes, set.get());
    for (const int cpu : plan.cpus) CPU_SET_S(static_cast<std::size_t>(cpu), bytes, set.get());
    if (!plan.cpus.empty() && sched_setaffinity(0, bytes, set.get()) != 0) {
        plan.text += " (not bound: " + std::generic_category().message(errno) + ")";
    }
}

}  // namespace trainctl
