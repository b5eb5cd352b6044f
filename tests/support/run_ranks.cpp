#include "support/run_ranks.h"

#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "support/late_device.h"

namespace trainctl::test {
namespace {

std::unique_ptr<CpuDevice> make_device(const RankOptions& options, int rank) {
    if (!options.late_seed) return make_cpu_device({options.threads, options.isa});
    // The extreme orders 0 and 1 are the same for all ranks; other seeds differ from rank to rank.
    const std::uint64_t seed = *options.late_seed;
    const std::uint64_t own = seed <= 1 ? seed : seed * 1000 + static_cast<std::uint64_t>(rank);
    return make_late_device({own, options.threads, options.isa});
}

}  // namespace

void run_ranks(int ranks, const RankFunction& function, const RankOptions& options) {
    const std::shared_ptr<InProcessHub> hub = make_in_process_hub(ranks);
    std::mutex mutex;
    std::exception_ptr first;

    const auto run_one = [&](int rank) {
        const auto keep = [&](const std::exception_ptr& failure) {
            const std::scoped_lock lock(mutex);
            if (!first) first = failure;
        };
        try {
            const std::unique_ptr<CpuDevice> device = make_device(options, rank);
            const std::unique_ptr<World> world = join_in_process(hub, rank, *device, options.world);
            try {
                function(*world, *device);
            } catch (const Error& error) {
                keep(std::current_exception());
                world->abort(error);
            } catch (const std::exception& error) {
                keep(std::current_exception());
                world->abort(Error(Exit::Internal, error.what(), Where::here()));
            }
        } catch (...) {  // no device or no world: the others would wait for their deadline
            keep(std::current_exception());
        }
    };

    std::vector<std::thread> threads;
    threads.reserve(static_cast<std::size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(run_one, rank);
    for (std::thread& thread : threads) thread.join();
    if (first) std::rethrow_exception(first);
}

}  // namespace trainctl::test
