#include "trainctl/device/affinity.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>

#include "trainctl/base/text.h"

namespace trainctl {
namespace {

CpuList intersection(const CpuList& a, const CpuList& b) {
    CpuList both;
    std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
    return both;
}

// The cores of which at least one logical processor is in `cpus`, cut down to those.
std::vector<CpuList> cores_within(const std::vector<CpuList>& cores, const CpuList& cpus) {
    std::vector<CpuList> within;
    for (const CpuList& core : cores) {
        CpuList part = intersection(core, cpus);
        if (!part.empty()) within.push_back(std::move(part));
    }
    return within;
}

// OpenMPI binds to a core for up to two processes, to a NUMA node (older: package) for more. Any other set
// was made by the user inside mpirun (taskset, numactl).
bool looks_like_default_binding(const AffinityFacts& facts) {
    const auto is_bound = [&](const CpuList& unit) { return unit == facts.bound; };
    return std::any_of(facts.cores.begin(), facts.cores.end(), is_bound) ||
           std::any_of(facts.domains.begin(), facts.domains.end(), is_bound);
}

int core_count(const std::vector<CpuList>& cores) { return static_cast<int>(cores.size()); }

AffinityPlan keep_binding(const AffinityFacts& facts, const std::vector<CpuList>& job) {
    const int own = core_count(cores_within(facts.cores, facts.bound));
    // Ranks bound to the same NUMA node share it. Only the numbers tell: sets of this size cannot all be
    // disjoint.
    const int total = std::max(core_count(job), 1);
    const int sharers = std::max(1, (facts.place.size * own + total - 1) / total);
    AffinityPlan plan;
    plan.cpus = facts.bound;
    plan.threads = std::max(1, own / sharers);
    plan.text =
        sharers > 1 ? fmt::format("the user's binding, shared by {} ranks", sharers) : "the user's binding";
    return plan;
}

// An even part of `cores` for the rank at place.rank of place.size: neighbours, at least one.
AffinityPlan share_of(const std::vector<CpuList>& cores, LocalPlace place) {
    const int total = core_count(cores);
    const auto [rank, size] = place;
    AffinityPlan plan;
    int begin = rank % std::max(total, 1);
    int end = begin + 1;
    if (total >= size) {
        begin = total * rank / size;
        end = total * (rank + 1) / size;
        plan.threads = total / size;  // the same for all: the slowest rank sets the pace
    }
    for (int core = begin; core < std::min(end, total); ++core) {
        const CpuList& cpus = cores[static_cast<std::size_t>(core)];
        plan.cpus.insert(plan.cpus.end(), cpus.begin(), cpus.end());
    }
    std::sort(plan.cpus.begin(), plan.cpus.end());
    return plan;
}

std::string describe(const GpuPlace& gpu) {
    return gpu.numa_node < 0 ? fmt::format("GPU {}", gpu.pci_bus)
                             : fmt::format("GPU {} (NUMA node {})", gpu.pci_bus, gpu.numa_node);
}

// Ranks whose GPUs hang on the same place, as one of them sees it.
struct Neighbours {
    std::vector<CpuList> cores;  // of the job, near those GPUs
    LocalPlace place;
};

Neighbours neighbours_of(const AffinityFacts& facts, const std::vector<CpuList>& job, int rank) {
    const CpuList& near = facts.gpus[static_cast<std::size_t>(rank)].near;
    Neighbours neighbours{cores_within(job, near), {0, 0}};
    for (int other = 0; other < facts.place.size; ++other) {
        if (facts.gpus[static_cast<std::size_t>(other)].near != near) continue;
        if (other < rank) ++neighbours.place.rank;
        ++neighbours.place.size;
    }
    return neighbours;
}

// Why ranks cannot be placed near their GPUs; empty if they can. All ranks of a host see the same: if some
// were placed near their GPUs and others anywhere, they would get the same cores.
std::string why_not_near(const AffinityFacts& facts, const std::vector<CpuList>& job) {
    if (static_cast<int>(facts.gpus.size()) != facts.place.size) return "not every rank has one";
    for (int rank = 0; rank < facts.place.size; ++rank) {
        const GpuPlace& gpu = facts.gpus[static_cast<std::size_t>(rank)];
        if (gpu.near.empty()) return fmt::format("where GPU {} hangs is not known", gpu.pci_bus);
        const Neighbours neighbours = neighbours_of(facts, job, rank);
        if (core_count(neighbours.cores) < neighbours.place.size) {
            return fmt::format("the job may use {} near {} for {}",
                               counted(core_count(neighbours.cores), "core"), describe(gpu),
                               counted(neighbours.place.size, "rank"));
        }
        for (const GpuPlace& other : facts.gpus) {
            if (other.near != gpu.near && !intersection(other.near, gpu.near).empty()) {
                return fmt::format("what is near GPU {} and near GPU {} overlaps", gpu.pci_bus,
                                   other.pci_bus);
            }
        }
    }
    return {};
}

AffinityPlan share_near_gpu(const AffinityFacts& facts, const std::vector<CpuList>& job) {
    const Neighbours neighbours = neighbours_of(facts, job, facts.place.rank);
    AffinityPlan plan = share_of(neighbours.cores, neighbours.place);
    for (int rank = 0; rank < facts.place.size; ++rank) {
        const Neighbours others = neighbours_of(facts, job, rank);
        plan.threads = std::min(plan.threads, core_count(others.cores) / others.place.size);
    }
    plan.text = fmt::format("share {} of {} in the {} near {}", neighbours.place.rank + 1,
                            neighbours.place.size, counted(core_count(neighbours.cores), "core"),
                            describe(facts.gpus[static_cast<std::size_t>(facts.place.rank)]));
    return plan;
}

AffinityPlan share_anywhere(const AffinityFacts& facts, const std::vector<CpuList>& job) {
    const int total = core_count(job);
    const auto [rank, size] = facts.place;
    AffinityPlan plan = share_of(job, facts.place);
    const std::string cores = counted(total, "core");
    plan.text =
        size > 1 ? fmt::format("share of local rank {} of {} in the {} allowed to the job", rank, size, cores)
                 : fmt::format("all {} allowed to the job", cores);
    if (total < size) plan.text += ", which are fewer than the ranks";
    return plan;
}

AffinityPlan rank_share(const AffinityFacts& facts, const std::vector<CpuList>& job) {
    const std::string far = facts.gpus.empty() ? std::string() : why_not_near(facts, job);
    AffinityPlan plan =
        facts.gpus.empty() || !far.empty() ? share_anywhere(facts, job) : share_near_gpu(facts, job);
    if (!far.empty()) plan.text += fmt::format("; not by the places of the GPUs: {}", far);
    if (facts.launcher == LauncherBinding::SilentDefault) {
        plan.text += fmt::format("; OpenMPI's default binding to cpus {} replaced", format_cpus(facts.bound));
    }
    if (facts.launcher == LauncherBinding::Unbound) {
        plan.cpus = facts.bound;
        plan.text += "; not bound, as the user asked";
    }
    return plan;
}

}  // namespace

AffinityPlan plan_affinity(const AffinityFacts& facts) {
    const std::vector<CpuList> job = cores_within(facts.cores, facts.allowed);
    const bool silent = facts.launcher == LauncherBinding::SilentDefault && looks_like_default_binding(facts);
    const bool bound = !silent && intersection(facts.bound, facts.allowed).size() < facts.allowed.size();
    AffinityPlan plan = bound || job.empty() ? keep_binding(facts, job) : rank_share(facts, job);

    if (facts.cpu_quota > 0.0) {
        const int within = std::max(1, static_cast<int>(facts.cpu_quota / facts.place.size));
        if (within < plan.threads) {
            plan.threads = within;
            plan.text += fmt::format("; limited by the cgroup's quota of {:.1f} processors", facts.cpu_quota);
        }
    }
    if (facts.wanted_threads > 0) {
        const int cores = core_count(cores_within(facts.cores, plan.cpus));
        plan.threads = facts.wanted_threads;
        plan.text += "; thread count from device.threads";
        if (plan.threads > cores) plan.text += fmt::format(", more than the {}", counted(cores, "core"));
    }
    plan.text =
        fmt::format("{} on cpus {}: {}", counted(plan.threads, "thread"), format_cpus(plan.cpus), plan.text);
    return plan;
}

std::string format_cpus(const CpuList& cpus) {
    std::string text;
    for (std::size_t first = 0; first < cpus.size();) {
        std::size_t last = first;
        while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
        if (!text.empty()) text += ',';
        text +=
            first == last ? fmt::format("{}", cpus[first]) : fmt::format("{}-{}", cpus[first], cpus[last]);
        first = last + 1;
    }
    return text;
}

}  // namespace trainctl
