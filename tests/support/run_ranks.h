// Runs a function as every rank of a world, one thread per rank, each with a device of its own.
//
//     const std::vector<float> sums = collect_ranks<float>(4, [](World& world, CpuDevice& device) { ...return
//     x; }); CHECK(...);                                        // assertions here, never inside the
//     function: Catch2's
//                                                        // are not thread-safe
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "trainctl/comm/world.h"

namespace trainctl::test {

struct RankOptions {
    int threads = 1;  // compute threads per rank
    CpuIsa isa = CpuIsa::V3;
    WorldOptions world{.timeout_s = 30.0, .tuning = {}};
    std::optional<std::uint64_t> late_seed;  // late devices (late_device.h) instead of cpu devices
};

using RankFunction = std::function<void(World& world, CpuDevice& device)>;

// Returns when all ranks have. The first rank that throws ends the others (Exit::Peer); its exception is
// rethrown here. Several calls may run at once.
void run_ranks(int ranks, const RankFunction& function, const RankOptions& options = {});

// The same, returning what each rank returned, by rank.
template <class T, class F>
std::vector<T> collect_ranks(int ranks, const F& function, const RankOptions& options = {}) {
    std::vector<std::optional<T>> results(static_cast<std::size_t>(ranks));
    run_ranks(
        ranks,
        [&](World& world, CpuDevice& device) {
            results[static_cast<std::size_t>(world.rank())].emplace(function(world, device));
        },
        options);
    std::vector<T> values;
    values.reserve(results.size());
    for (auto& result : results) values.push_back(std::move(*result));
    return values;
}

}  // namespace trainctl::test
