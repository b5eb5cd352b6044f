#include "cli/rank_main.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <thread>

#include "cli/rank_errors.h"
#include "trainctl/comm/host_name.h"
#include "trainctl/device/affinity.h"
#include "trainctl/train/signals.h"

namespace trainctl {
namespace {

// Whether another rank's message should stand alone: an error that all ranks share is printed by rank 0, one
// that only some have by the lowest of them. Waits a moment, during which the launcher's SIGTERM says that
// somebody else has spoken.
bool somebody_else_spoke(const World& world, const Error& error, const StopFlag& stop) {
    if (world.rank() == 0 && error.code() != Exit::Peer) return false;
    const double patience_s = (error.code() == Exit::Peer ? 2.0 : 0.5) + 0.05 * std::min(world.rank(), 20);
    const bool asked_before = stop.stop_requested();
    const SystemClock clock;
    const double until = clock.monotonic_s() + patience_s;
    while (clock.monotonic_s() < until) {
        if (!asked_before && stop.stop_requested()) return true;
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
}

void end_all_ranks(World& world, const Error& error, const StopFlag& stop, OutputFormat format) {
    if (world.size() == 1) throw error;
    if (!somebody_else_spoke(world, error, stop))
        report_rank_error(error, world.rank(), world.host(), format);
    world.abort(error);  // does not return under MPI
    throw ReportedError(error);
}

}  // namespace

Exit rank_main(Invocation& invocation, const RankSettings& settings,
               const std::function<Exit(RankContext&)>& body) {
    AffinityPlan affinity =
        plan_affinity(affinity_facts(local_place(), static_cast<int>(settings.device.threads)));
    apply_affinity(affinity);  // before any thread is started
    StopFlag stop;
    DescriptorLog log(STDERR_FILENO, LogLevel::Info, {environment_rank(), environment_ranks(), host_name()});
    const SignalThread signals(stop, log);

    const CpuDeviceOptions options{affinity.threads, choose_cpu_isa(settings.device.cpu_isa)};
    const std::unique_ptr<CpuDevice> device = make_cpu_device(options);
    WorldOptions world_options;
    world_options.timeout_s = settings.timeout_s;
    const std::unique_ptr<World> world = launched_by_mpi() ? make_mpi_world(*device, world_options)
                                                           : make_single_world(*device, world_options);
    if (world->rank() == 0) log.info(affinity.text);
    RankContext context{invocation, *device, *world, stop, log};
    try {
        return body(context);
    } catch (const Error& error) {
        end_all_ranks(*world, error, stop, invocation.format);
    } catch (const std::bad_alloc&) {
        end_all_ranks(*world, Error(Exit::Resource, "out of host memory", Where::here()), stop,
                      invocation.format);
    } catch (const std::exception& error) {
        end_all_ranks(*world, Error(Exit::Internal, error.what(), Where::here()), stop, invocation.format);
    }
    return Exit::Internal;
}

}  // namespace trainctl
