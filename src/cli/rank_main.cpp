#include "cli/rank_main.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <new>
#include <thread>

#include "cli/rank_device.h"
#include "cli/rank_errors.h"
#include "cli/spin_wait.h"
#include "trainctl/base/text.h"
#include "trainctl/comm/cuda_comm.h"
#include "trainctl/comm/host_name.h"
#include "trainctl/comm/mpi_ports.h"
#include "trainctl/device/affinity.h"
#include "trainctl/train/signals.h"

namespace trainctl {
namespace {

// How long a rank waits for another one to speak. An error that all ranks share is printed by rank 0; one
// that only some have by the lowest of them; a lost peer only if nobody else knows more.
double patience_s(const World& world, const Error& error) {
    if (error.code() == Exit::Peer) return 5.0 + 0.05 * std::min(world.rank(), 20);
    return world.rank() == 0 ? 0.0 : 3.0 + 0.05 * std::min(world.rank(), 20);
}

// Waits; true as soon as the launcher's SIGTERM says that somebody else has spoken.
bool somebody_else_speaks(double seconds, const StopFlag& stop) {
    const bool asked_before = stop.stop_requested();
    const SystemClock clock;
    const double until = clock.monotonic_s() + seconds;
    while (clock.monotonic_s() < until) {
        if (!asked_before && stop.stop_requested()) return true;
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
}

// One message for the failure of a run, by the rank that knows most. Returns in worlds without MPI.
void speak_and_end(World& world, const Error& error, const StopFlag& stop, OutputFormat format) {
    if (somebody_else_speaks(patience_s(world, error), stop)) {
        // The launcher is ending this process: a second call for an end would only confuse it.
        std::this_thread::sleep_for(std::chrono::seconds(3));
    } else if (error.scope() == Scope::Shared || world.size() == 1) {
        if (world.rank() == 0) report_shared_error(error, format);
    } else {
        report_rank_error(error, world.rank(), world.host(), format);
    }
    world.abort(error);
}

void end_all_ranks(World& world, const Error& error, const StopFlag& stop, OutputFormat format) {
    if (world.size() == 1) throw error;
    speak_and_end(world, error, stop, format);
    throw ReportedError(error);
}

// What the log says about the ports that MPI may use.
std::string limit_ports(const PortRange& ports, const LocalPlace& place) {
    if (ports.size() < place.size) {
        fail(Exit::Usage, fmt::format("launch.port_range {}-{} has {} for {} on one host; give "
                                      "at least one to each",
                                      ports.first, ports.last, counted(ports.size(), "port"),
                                      counted(place.size, "rank")));
    }
    if (const auto chosen = limit_mpi_ports(ports.first, ports.last)) {
        return fmt::format("launch.port_range {}-{} is not used: {} is set and wins", ports.first, ports.last,
                           *chosen);
    }
    return fmt::format("ranks listen on TCP ports {}-{} (launch.port_range)", ports.first, ports.last);
}

// The cores near the GPUs that the ranks of this host will take, if any.
void move_to_gpu(const RankSettings& settings, AffinityFacts& facts, AffinityPlan& plan) {
    if (settings.device.kind == DeviceKind::Cpu) return;
    HostDevices host;
    try {
        host.devices = list_cuda_devices(&host.why_none);
    } catch (
        const Error&) {  // a driver in trouble: make_rank() says it, when the ranks can agree on who speaks
        return;
    }
    host.local_size = facts.place.size;
    host.world_size = environment_ranks();
    facts.gpus = find_gpus(gpus_of_local_ranks(settings.device, settings.communication.backend, host));
    if (facts.gpus.empty()) return;
    plan = plan_affinity(facts);
    apply_affinity(plan);
}

// Who answers a signal: one line, however many ranks got it.
Announce announce() {
    if (environment_ranks() == 1) return Announce::AtOnce;
    return environment_rank() == 0 ? Announce::IfItGoesOn : Announce::Never;
}

}  // namespace

void leave_now(RankContext& context, const Error& error) {
    speak_and_end(context.world, error, context.stop, context.invocation.format);
    std::_Exit(static_cast<int>(error.code()));
}

Exit rank_main(Invocation& invocation, const RankSettings& settings,
               const std::function<Exit(RankContext&)>& body) {
    restart_with_short_spin(invocation.arguments);
    // Environment and affinity before any thread is started.
    if (settings.device.kind != DeviceKind::Cpu && settings.communication.deterministic) pin_nccl_order();
    const LocalPlace place = local_place();
    const std::string ports =
        settings.ports && launched_by_mpi() ? limit_ports(*settings.ports, place) : std::string();
    AffinityFacts facts = affinity_facts(place, static_cast<int>(settings.device.threads));
    AffinityPlan affinity = plan_affinity(facts);
    apply_affinity(affinity);
    StopFlag stop;
    DescriptorLog log(STDERR_FILENO, LogLevel::Info, {environment_rank(), environment_ranks(), host_name()});
    const SignalThread signals(stop, log, announce());
    // Training outlives the terminal or pipe that its progress went to.
    std::signal(SIGPIPE, SIG_IGN);
    // The driver may start threads when it is asked for its GPUs: with the rank's cores and signals blocked.
    move_to_gpu(settings, facts, affinity);

    const CpuDeviceOptions options{affinity.threads, choose_cpu_isa(settings.device.cpu_isa)};
    const std::unique_ptr<CpuDevice> device = make_cpu_device(options);
    WorldOptions world_options;
    world_options.timeout_s = settings.communication.timeout_s;
    const std::unique_ptr<World> world = launched_by_mpi() ? make_mpi_world(*device, world_options)
                                                           : make_single_world(*device, world_options);
    if (world->rank() == 0) {
        log.info(affinity.text);
        if (!ports.empty()) log.info(ports);
    }
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
