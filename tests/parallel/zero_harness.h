// Trains a synthetic model on ranks that are threads of this process, and collects what every rank computed.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "parallel/synthetic_model.h"
#include "support/run_ranks.h"
#include "trainctl/comm/communicator.h"
#include "trainctl/device/cpu_device.h"
#include "trainctl/parallel/zero.h"

namespace trainctl::test {

using NamedTensors = std::map<std::string, std::vector<float>>;  // whole logical tensors

struct Fault {
    int rank = -1;  // none
    int step = 0;
    enum class Where : std::uint8_t { Gradient, Loss } where = Where::Gradient;
};

struct ZeroRun {
    int ranks = 1;
    int steps = 2;
    int first_step = 0;  // names the gradients of a step
    int samples = 4;     // per step, over all ranks; micro-batches = samples / ranks
    ZeroOptions options;
    GradientKind kind = GradientKind::Whole;
    FirstUse first = FirstUse::Early;
    double max_norm = 1.0;
    int producers = 1;  // streams that write gradients; 1: the compute stream alone
    Announce announce = Announce::Producers;
    RankOptions on;  // the devices, late ones for example
    Fault fault;
    bool abandon = false;                // before every step, a backward pass whose gradients are never used
    const NamedTensors* load = nullptr;  // instead of the initial values
    int updates_before = 0;
    std::uint64_t seed = 5;
};

struct StepResult {
    double loss_sum = 0.0;
    double norm = 0.0;
    double clip = 0.0;
    double apply = 0.0;
    bool operator==(const StepResult& other) const = default;
};

struct ZeroResult {
    NamedTensors state;                          // "<name>", "<name>.m", "<name>.v", joined over the ranks
    std::vector<std::vector<StepResult>> steps;  // by rank
    std::vector<std::string> defects;            // what a rank found wrong with its own memory
    int buckets = 0;
    std::uint64_t steady_allocations = 0;  // device allocations made after the first step, all ranks
};

// What a rank of a world works on; made and ended around it. Reference ops.
struct RankContext {
    int rank = 0;
    CpuDevice& device;
    Communicator& data;
    Stream& compute;
    Stream& communication;
    Ops ops;
};
// f(context) on `ranks` threads; the first failure is rethrown after all have ended.
void on_ranks(int ranks, const std::function<void(RankContext&)>& f, const RankOptions& options = {});

ZeroResult run_zero(const std::vector<ParamSpec>& params, const ZeroRun& run);

}  // namespace trainctl::test
