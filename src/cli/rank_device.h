// Which device a rank computes on, and everything made on it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/rank_main.h"
#include "trainctl/device/cuda_device.h"
#include "trainctl/ops/product_plans.h"

namespace trainctl {

// device.kind and communication.backend against what a host has. Pure.
struct DeviceChoice {
    bool cuda = false;
    bool nccl = false;    // else through the host
    int ordinal = 0;      // of the rank's GPU
    std::string pci_bus;  // of that GPU
    std::string text;     // for the log: what was taken, and why
};

// What one rank knows of its host; ranks of a host have the same `devices`.
struct HostDevices {
    std::vector<CudaDeviceEntry> devices;
    std::string why_none;  // what the driver or the build says if there are none
    int local_rank = 0;
    int local_size = 1;
    int world_size = 1;
};

// cuda never falls back: Exit::Resource if the host has no GPU for the rank, Exit::Usage for what
// contradicts (NCCL, CUDA graphs or TF32 products on the cpu). auto takes cuda if every rank of the host gets
// a GPU of its own, else the cpu.
DeviceChoice choose_device(const DeviceSpec& device, const std::string& backend, const HostDevices& host,
                           F32Products f32 = F32Products::Exact);

// The rule by which ranks of a host take its GPUs: ordinal of the one for `local_rank`.
int gpu_of_local_rank(int local_rank, std::size_t gpus);

// PCI bus of the GPU of each rank of `host`, by local rank; empty if they take the cpu, or if choose_device
// refuses.
std::vector<std::string> gpus_of_local_ranks(const DeviceSpec& device, const std::string& backend,
                                             HostDevices host);

// A rank on the device of its choice. Destroyed from below: the rank before the device.
struct RankOnDevice {
    std::unique_ptr<CudaDevice> accelerator;  // nullptr: the host's processor
    std::unique_ptr<Rank> rank;
    std::string pci_bus;  // of the GPU; empty without one
};

// Exit::Usage if the chosen device has no kernels for the model.
void require_kernels(const DeviceChoice& choice, const ModelSpec& model);

// Collective over the world: all ranks agree on the kind of device (one that differs is Exit::Resource) and
// that it can compute `model` (nullptr: one that every device can). Rank 0 logs what was taken.
RankOnDevice make_rank(RankContext& context, const DeviceSpec& device, const CommunicationSpec& communication,
                       MeshShape shape, const ModelSpec* model, F32Products f32 = F32Products::Exact);

// What a job asks of fp32 products.
F32Products f32_products(const PrecisionSpec& precision);

}  // namespace trainctl
