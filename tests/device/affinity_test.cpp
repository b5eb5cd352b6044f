#include "trainctl/device/affinity.h"

#include <numeric>

#include "support/catch.h"

using namespace trainctl;

namespace {

// `cores` physical cores with `threads_per_core` processors each, numbered like Linux does: first processors
// of all cores, then second ones. `per_domain` cores per NUMA node. Everything allowed, nothing bound.
AffinityFacts machine(int cores, int threads_per_core, int per_domain) {
    AffinityFacts facts;
    for (int core = 0; core < cores; ++core) {
        CpuList cpus;
        for (int thread = 0; thread < threads_per_core; ++thread) cpus.push_back(core + thread * cores);
        facts.cores.push_back(cpus);
        if (core % per_domain == 0) facts.domains.emplace_back();
        CpuList& domain = facts.domains.back();
        domain.insert(domain.end(), cpus.begin(), cpus.end());
    }
    for (CpuList& domain : facts.domains) std::sort(domain.begin(), domain.end());
    facts.allowed.resize(static_cast<std::size_t>(cores * threads_per_core));
    std::iota(facts.allowed.begin(), facts.allowed.end(), 0);
    facts.bound = facts.allowed;
    return facts;
}

AffinityPlan plan_for(AffinityFacts facts, int rank, int size) {
    facts.place = {rank, size};
    return plan_affinity(facts);
}

}  // namespace

TEST_CASE("one rank uses every core it may, one thread per physical core") {
    const AffinityPlan plan = plan_for(machine(8, 2, 8), 0, 1);
    CHECK(plan.threads == 8);
    CHECK(plan.cpus.size() == 16);
    CHECK_THAT(plan.text, Catch::Contains("8 threads on cpus 0-15"));
}

TEST_CASE("ranks of a host get disjoint, equal, adjacent shares") {
    for (const int size : {1, 2, 3, 4, 7, 16}) {
        INFO(size);
        CpuList all;
        for (int rank = 0; rank < size; ++rank) {
            const AffinityPlan plan = plan_for(machine(16, 2, 8), rank, size);
            CHECK(plan.threads == 16 / size);
            all.insert(all.end(), plan.cpus.begin(), plan.cpus.end());
        }
        std::sort(all.begin(), all.end());
        CHECK(std::adjacent_find(all.begin(), all.end()) == all.end());
        CHECK(all.size() == 32);
    }
    CHECK(plan_for(machine(16, 1, 8), 1, 4).cpus == CpuList{4, 5, 6, 7});
}

TEST_CASE("OpenMPI's silent default binding is widened to the share") {
    AffinityFacts facts = machine(8, 1, 4);
    facts.launcher = LauncherBinding::SilentDefault;
    facts.bound = {0};  // mpirun -n 1 ties the rank to one core
    CHECK(plan_for(facts, 0, 1).threads == 8);
    facts.bound = {1};
    CHECK(plan_for(facts, 1, 2).cpus == CpuList{4, 5, 6, 7});
    CHECK_THAT(plan_for(facts, 1, 2).text, Catch::Contains("OpenMPI's default binding to cpus 1 replaced"));
    facts.bound = {4, 5, 6, 7};  // more than two ranks: a NUMA node each
    CHECK(plan_for(facts, 3, 4).cpus == CpuList{6, 7});
}

TEST_CASE("a binding that the user asked for is kept") {
    AffinityFacts facts = machine(8, 1, 4);
    SECTION("taskset without a launcher") {
        facts.bound = {2, 3, 5};
        const AffinityPlan plan = plan_for(facts, 0, 1);
        CHECK(plan.cpus == CpuList{2, 3, 5});
        CHECK(plan.threads == 3);
    }
    SECTION("mpirun --bind-to core") {
        facts.launcher = LauncherBinding::Requested;
        facts.bound = {1};
        CHECK(plan_for(facts, 1, 2).cpus == CpuList{1});
        CHECK(plan_for(facts, 1, 2).threads == 1);
    }
    SECTION("mpirun --bind-to numa with two ranks per node: they share its cores") {
        facts.launcher = LauncherBinding::Requested;
        facts.bound = {4, 5, 6, 7};
        const AffinityPlan plan = plan_for(facts, 3, 4);
        CHECK(plan.cpus == facts.bound);
        CHECK(plan.threads == 2);
    }
    SECTION("taskset inside mpirun") {
        facts.launcher = LauncherBinding::SilentDefault;
        facts.bound = {1, 2, 3};  // neither a core nor a NUMA node
        CHECK(plan_for(facts, 0, 1).cpus == CpuList{1, 2, 3});
    }
    SECTION("mpirun --bind-to none: a share of the threads, no binding") {
        facts.launcher = LauncherBinding::Unbound;
        const AffinityPlan plan = plan_for(facts, 1, 2);
        CHECK(plan.threads == 4);
        CHECK(plan.cpus == facts.allowed);
        facts.bound = {6};  // mpirun --bind-to none taskset -c 6 trainctl
        CHECK(plan_for(facts, 1, 2).cpus == CpuList{6});
        CHECK(plan_for(facts, 1, 2).threads == 1);
    }
}

TEST_CASE("only what the job may use is shared out") {
    AffinityFacts facts = machine(8, 2, 8);
    facts.allowed = {2, 3, 10, 11};  // two cores with both their processors
    facts.bound = facts.allowed;
    CHECK(plan_for(facts, 0, 1).threads == 2);
    CHECK(plan_for(facts, 1, 2).cpus == CpuList{3, 11});
    facts.launcher =
        LauncherBinding::SilentDefault;  // taskset around mpirun: OpenMPI may even bind outside of it
    facts.bound = {0, 8};
    CHECK(plan_for(facts, 0, 2).cpus == CpuList{2, 10});
}

TEST_CASE("more ranks than cores still get a core each") {
    for (int rank = 0; rank < 5; ++rank) {
        const AffinityPlan plan = plan_for(machine(2, 1, 2), rank, 5);
        CHECK(plan.threads == 1);
        CHECK(plan.cpus == CpuList{rank % 2});
        CHECK_THAT(plan.text, Catch::Contains("fewer than the ranks"));
    }
}

TEST_CASE("a quota of processor time and device.threads limit the threads") {
    AffinityFacts facts = machine(16, 1, 16);
    facts.cpu_quota = 6.0;
    CHECK(plan_for(facts, 0, 1).threads == 6);
    CHECK(plan_for(facts, 0, 4).threads == 1);
    facts.wanted_threads = 3;
    CHECK(plan_for(facts, 0, 1).threads == 3);
    facts.wanted_threads = 32;
    CHECK_THAT(plan_for(facts, 0, 1).text, Catch::Contains("more than the 16 cores"));
}

TEST_CASE("this machine can be planned for and bound") {
    const AffinityFacts facts = affinity_facts(local_place(), 0);
    CHECK_FALSE(facts.cores.empty());
    CHECK_FALSE(facts.allowed.empty());
    AffinityPlan plan = plan_affinity(facts);
    CHECK(plan.threads >= 1);
    REQUIRE_FALSE(plan.cpus.empty());
    apply_affinity(plan);
    CHECK_THAT(plan.text, !Catch::Contains("not bound: "));
    CHECK(affinity_facts({}, 0).bound == plan.cpus);
}

namespace {

// A machine of two NUMA nodes whose ranks have GPUs on these nodes, by local rank.
AffinityFacts machine_with_gpus(const std::vector<int>& nodes, int cores, int threads_per_core = 1) {
    AffinityFacts facts = machine(cores, threads_per_core, cores / 2);
    for (const int node : nodes) {
        facts.gpus.push_back({"0000:" + std::to_string(10 + facts.gpus.size()) + ":00.0",
                              facts.domains[static_cast<std::size_t>(node)], node});
    }
    return facts;
}

std::vector<AffinityPlan> plans_of_ranks(const AffinityFacts& facts) {
    std::vector<AffinityPlan> plans;
    const auto size = static_cast<int>(facts.gpus.size());
    for (int rank = 0; rank < size; ++rank) plans.push_back(plan_for(facts, rank, size));
    return plans;
}

bool disjoint(const std::vector<AffinityPlan>& plans) {
    CpuList all;
    for (const AffinityPlan& plan : plans) all.insert(all.end(), plan.cpus.begin(), plan.cpus.end());
    std::sort(all.begin(), all.end());
    return std::adjacent_find(all.begin(), all.end()) == all.end();
}

bool within(const CpuList& cpus, const CpuList& near) {
    return std::includes(near.begin(), near.end(), cpus.begin(), cpus.end());
}

}  // namespace

TEST_CASE("ranks compute near their GPUs, whatever the order of the GPUs") {
    for (const int threads_per_core : {1, 2}) {
        const AffinityFacts facts = machine_with_gpus({0, 1, 1, 0, 0, 1, 0, 1}, 32, threads_per_core);
        const std::vector<AffinityPlan> plans = plans_of_ranks(facts);
        CHECK(disjoint(plans));
        for (std::size_t rank = 0; rank < plans.size(); ++rank) {
            CAPTURE(threads_per_core, rank, plans[rank].text);
            CHECK(plans[rank].threads == 4);
            CHECK(plans[rank].cpus.size() == static_cast<std::size_t>(4 * threads_per_core));
            CHECK(within(plans[rank].cpus, facts.gpus[rank].near));
        }
        CHECK(plans[2].cpus.front() == 20);
        CHECK_THAT(plans[2].text,
                   Catch::Contains("share 2 of 4 in the 16 cores near GPU 0000:12:00.0 (NUMA node 1)"));
    }
}

TEST_CASE("ranks whose GPUs all hang on one node share its cores") {
    const AffinityFacts facts = machine_with_gpus({1, 1, 1, 1}, 16);
    const std::vector<AffinityPlan> plans = plans_of_ranks(facts);
    CHECK(disjoint(plans));
    for (const AffinityPlan& plan : plans) {
        CHECK(plan.threads == 2);
        CHECK(within(plan.cpus, facts.domains[1]));
    }
}

TEST_CASE("ranks on an emptier node have more cores, not more threads") {
    const AffinityFacts facts = machine_with_gpus({0, 0, 0, 1}, 12);
    const std::vector<AffinityPlan> plans = plans_of_ranks(facts);
    CHECK(disjoint(plans));
    for (const AffinityPlan& plan : plans) CHECK(plan.threads == 2);
    CHECK(plans[3].cpus.size() == 6);
}

TEST_CASE("where not all ranks find cores near their GPUs, all share as if they had none, and say why") {
    const auto falls_back = [](const AffinityFacts& facts, const std::string& why) {
        AffinityFacts without = facts;
        without.gpus.clear();
        const auto size = static_cast<int>(facts.gpus.size());
        for (int rank = 0; rank < size; ++rank) {
            const AffinityPlan plan = plan_for(facts, rank, size);
            CHECK(plan.cpus == plan_for(without, rank, size).cpus);
            CHECK(plan.threads == plan_for(without, rank, size).threads);
            CHECK_THAT(plan.text, Catch::Contains("not by the places of the GPUs: " + why));
        }
    };
    AffinityFacts unknown = machine_with_gpus({0, 1}, 8);
    unknown.gpus[1].near.clear();
    falls_back(unknown, "where GPU 0000:11:00.0 hangs is not known");

    AffinityFacts outside = machine_with_gpus({0, 1}, 8);
    outside.allowed = outside.bound = {0, 1, 2, 3};  // a job on node 0 only
    falls_back(outside, "the job may use 0 cores near GPU 0000:11:00.0 (NUMA node 1) for 1 rank");

    falls_back(machine_with_gpus({0, 0, 0, 1}, 4),
               "the job may use 2 cores near GPU 0000:10:00.0 (NUMA node 0) for 3 ranks");

    AffinityFacts nested = machine_with_gpus({0, 1}, 8);
    nested.gpus[1].near = {0, 1, 2, 3, 4, 5, 6, 7};
    falls_back(nested, "what is near GPU 0000:10:00.0 and near GPU 0000:11:00.0 overlaps");
}

TEST_CASE("a user's binding wins over the places of GPUs") {
    AffinityFacts facts = machine_with_gpus({0, 1}, 8);
    facts.launcher = LauncherBinding::Requested;
    facts.bound = {0, 1};
    const AffinityPlan plan = plan_for(facts, 1, 2);
    CHECK(plan.cpus == CpuList{0, 1});
    CHECK_THAT(plan.text, Catch::Contains("the user's binding"));
}

TEST_CASE("hwloc's topology tells where GPUs hang") {
    const std::string file = std::string(TRAINCTL_TOPOLOGIES) + "/two_nodes.xml";
    const auto gpus =
        find_gpus({"0000:b1:00.0", "0000:17:00.0", "0000:65:00.0", "0000:e3:00.0", "0000:99:00.0"}, file);
    REQUIRE(gpus.size() == 5);
    CHECK(gpus[0].pci_bus == "0000:b1:00.0");
    CHECK(gpus[0].near == CpuList{4, 5, 6, 7});
    CHECK(gpus[0].numa_node == 1);
    CHECK(gpus[1].near == CpuList{0, 1, 2, 3});
    CHECK(gpus[1].numa_node == 0);
    CHECK(gpus[2].near == CpuList{4, 5, 6, 7});
    CHECK(gpus[3].near.empty());  // under neither node
    CHECK(gpus[3].numa_node == -1);
    CHECK(gpus[4].near.empty());  // not there
    CHECK(find_gpus({}, file).empty());
    CHECK(find_gpus({"0000:17:00.0"}, file + ".missing").front().near.empty());
}
