#include "cli/rank_device.h"

#include <fmt/format.h>

#include <algorithm>

#include "trainctl/base/text.h"
#include "trainctl/checkpoint/agree.h"
#include "trainctl/comm/cuda_comm.h"
#include "trainctl/config/device_fit.h"

namespace trainctl {
namespace {

constexpr const char* use_cpu = "or set device.kind = \"cpu\"";

// `text`: why it is the cpu, for the log; empty where the job says so.
DeviceChoice cpu_choice(const DeviceSpec& device, const std::string& backend, const std::string& text) {
    const std::string why = text.empty() ? "device.kind = \"cpu\"" : text;
    if (device.cuda_graphs) {
        fail(
            Exit::Usage,
            fmt::format("device.cuda_graphs = true needs a GPU, but the ranks compute on the cpu ({}); leave "
                        "it out, or start where every rank finds a GPU",
                        why));
    }
    if (backend == "nccl") {
        fail(Exit::Usage,
             fmt::format("communication.backend = \"nccl\" moves tensors between GPUs, but the ranks compute "
                         "on the cpu ({}); set it to \"auto\"",
                         why));
    }
    DeviceChoice choice;
    choice.text = text;
    return choice;
}

DeviceChoice cuda_choice(const std::string& backend, const HostDevices& host, bool shared) {
    DeviceChoice choice;
    choice.cuda = true;
    choice.ordinal = gpu_of_local_rank(host.local_rank, host.devices.size());
    choice.nccl = backend == "nccl" || (backend == "auto" && !shared && host.world_size > 1);
    if (choice.nccl && shared) {
        fail(Exit::Usage,
             "communication.backend = \"nccl\" needs a GPU per rank, but device.share_gpus lets several "
             "ranks share one; "
             "set communication.backend = \"host\" or start fewer ranks");
    }
    const CudaDeviceEntry& entry = host.devices[static_cast<std::size_t>(choice.ordinal)];
    choice.pci_bus = entry.pci_bus;
    choice.text =
        fmt::format("device cuda: {} ({}, {}) for rank 0; messages by {}", entry.name,
                    format_bytes(entry.memory_bytes), entry.pci_bus, choice.nccl ? "NCCL" : "the host");
    return choice;
}

std::string kind_of(const DeviceChoice& choice) {
    return choice.cuda ? (choice.nccl ? "cuda with NCCL" : "cuda") : "cpu";
}

}  // namespace

namespace {

DeviceChoice choose(const DeviceSpec& device, const std::string& backend, const HostDevices& host) {
    if (device.kind == DeviceKind::Cpu) return cpu_choice(device, backend, {});
    const auto count = static_cast<int>(host.devices.size());
    const bool enough = count >= host.local_size;
    if (device.kind == DeviceKind::Auto) {
        if (count == 0)
            return cpu_choice(device, backend,
                              fmt::format("device.kind auto takes the cpu: {}", host.why_none));
        if (!enough) {
            return cpu_choice(device, backend,
                              fmt::format("device.kind auto takes the cpu: {} for {} on this host",
                                          counted(count, "GPU"), counted(host.local_size, "rank")));
        }
        return cuda_choice(backend, host, false);
    }
    if (count == 0) {
        fail(Exit::Resource,
             fmt::format("device.kind = \"cuda\": no GPU can be used here: {}; check `nvidia-smi`, {}",
                         host.why_none, use_cpu));
    }
    if (!enough && !device.share_gpus) {
        fail(Exit::Resource,
             fmt::format(
                 "device.kind = \"cuda\": expected a GPU for each of the {} of this host, found {}; start "
                 "fewer "
                 "ranks per host, or set device.share_gpus = true to let ranks share them (slow; for tests)",
                 counted(host.local_size, "rank"), counted(count, "GPU")));
    }
    return cuda_choice(backend, host, !enough);
}

}  // namespace

DeviceChoice choose_device(const DeviceSpec& device, const std::string& backend, const HostDevices& host,
                           F32Products f32) {
    DeviceChoice choice = choose(device, backend, host);
    if (f32 == F32Products::Tf32 && !choice.cuda) {
        fail(
            Exit::Usage,
            fmt::format("precision.tf32 = true needs a GPU, but the ranks would compute on the cpu{}; set it "
                        "to false",
                        choice.text.empty() ? "" : " (" + choice.text + ")"));
    }
    return choice;
}

F32Products f32_products(const PrecisionSpec& precision) {
    return precision.tf32 ? F32Products::Tf32 : F32Products::Exact;
}

int gpu_of_local_rank(int local_rank, std::size_t gpus) { return local_rank % static_cast<int>(gpus); }

std::vector<std::string> gpus_of_local_ranks(const DeviceSpec& device, const std::string& backend,
                                             HostDevices host) {
    std::vector<std::string> buses;
    try {
        for (host.local_rank = 0; host.local_rank < host.local_size; ++host.local_rank) {
            const DeviceChoice choice = choose_device(device, backend, host);
            if (!choice.cuda) return {};
            buses.push_back(choice.pci_bus);
        }
    } catch (const Error&) {  // make_rank() says it, when the ranks can agree on who speaks
        return {};
    }
    return buses;
}

void require_kernels(const DeviceChoice& choice, const ModelSpec& model) {
    const auto misfit = choice.cuda ? cuda_misfit(model) : std::nullopt;
    if (misfit) fail(Exit::Usage, fmt::format("{}; {}", misfit->what, misfit->hint));
}

RankOnDevice make_rank(RankContext& context, const DeviceSpec& device, const CommunicationSpec& communication,
                       MeshShape shape, const ModelSpec* model, F32Products f32) {
    World& world = context.world;
    DeviceChoice choice;
    agree(
        world.control(),
        [&] {
            HostDevices host;
            if (device.kind != DeviceKind::Cpu) host.devices = list_cuda_devices(&host.why_none);
            host.local_rank = world.local_rank();
            host.local_size = world.local_size();
            host.world_size = world.size();
            choice = choose_device(device, communication.backend, host, f32);
            if (model != nullptr) require_kernels(choice, *model);
            return kind_of(choice);
        },
        [&](const std::vector<std::string>& kinds) {
            const auto other = std::adjacent_find(kinds.begin(), kinds.end(), std::not_equal_to<>());
            if (other != kinds.end()) {
                fail(Exit::Resource,
                     fmt::format("ranks would compute on different devices: rank {} on {}, rank {} on {}; "
                                 "set device.kind",
                                 other - kinds.begin(), *other, other - kinds.begin() + 1, *(other + 1)));
            }
            return std::string();
        });
    if (world.rank() == 0 && !choice.text.empty()) context.log.info(choice.text);
    if (world.rank() == 0 && choice.nccl) context.log.info(describe_nccl_order());
    RankOnDevice made;
    if (!choice.cuda) {
        made.rank = std::make_unique<Rank>(context.device, world, shape);
        return made;
    }
    const CudaGraphs graphs = device.cuda_graphs ? CudaGraphs::On : CudaGraphs::Off;
    made.accelerator = make_cuda_device(choice.ordinal, graphs);
    made.pci_bus = choice.pci_bus;
    CudaMeshOptions options;
    options.transport = choice.nccl ? CudaTransport::Nccl : CudaTransport::Host;
    options.timeout_s = communication.timeout_s;
    options.on_failure = [&world, &log = context.log](const Error& error) {
        log.error(error.what());
        world.abort(error);
    };
    Mesh mesh = make_cuda_mesh(make_mesh(world, shape), *made.accelerator, context.device, options);
    made.rank = std::make_unique<Rank>(*made.accelerator, make_cuda_ops(*made.accelerator, f32), world,
                                       std::move(mesh));
    return made;
}

}  // namespace trainctl
