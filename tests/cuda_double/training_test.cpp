// Whole trainings by the CUDA backend on emulated devices against the cpu device: same job, same data, same
// weights.
#include <cmath>

#include "cuda_double/machine.h"
#include "support/catch.h"
#include "train/train_harness.h"
#include "trainctl/comm/cuda_comm.h"
#include "trainctl/device/cuda_device.h"

namespace trainctl::cuda_double {
namespace {

using test::TrainOutcome;
using test::TrainSetup;

// A rank and the emulated device it computes on, by local rank.
struct CudaRank {
    CudaRank(World& world, CpuDevice& host, MeshShape shape, CudaTransport transport)
        : device(make_cuda_device(world.local_rank())),
          rank(*device, make_cuda_ops(*device), world,
               make_cuda_mesh(make_mesh(world, shape), *device, host, {transport, 30.0, {}})) {}
    std::unique_ptr<Device> device;
    Rank rank;
};

auto cuda_rank(CudaTransport transport) {
    return [transport](World& world, CpuDevice& host, MeshShape shape) {
        const auto both = std::make_shared<CudaRank>(world, host, shape, transport);
        return std::shared_ptr<Rank>(both, &both->rank);
    };
}

TrainSetup five_steps(Architecture architecture, DType compute) {
    TrainSetup setup;
    setup.job = test::calm_job(architecture);
    setup.job.steps = 5;
    setup.job.schedule.warmup_steps = 2;
    setup.job.precision.compute = compute;
    return setup;
}

TrainOutcome on_cuda(TrainSetup setup, std::uint64_t seed, CudaTransport transport = CudaTransport::Nccl) {
    start_machine({.devices = 8, .seed = seed});
    setup.make_rank = cuda_rank(transport);
    return test::train(setup);
}

// Largest relative difference of a loss or a gradient norm.
double trace_difference(const TrainOutcome& a, const TrainOutcome& b) {
    double worst = a.steps.size() == b.steps.size() ? 0.0 : INFINITY;
    for (std::size_t i = 0; i < a.steps.size() && i < b.steps.size(); ++i) {
        worst = std::max(worst, std::abs(a.steps[i].loss - b.steps[i].loss) / b.steps[i].loss);
        worst = std::max(worst, std::abs(a.steps[i].grad_norm - b.steps[i].grad_norm) / b.steps[i].grad_norm);
    }
    return worst;
}

}  // namespace

TEST_CASE("one emulated device trains as the cpu does", "[cuda]") {
    for (const Architecture architecture : {Architecture::Gpt2, Architecture::Llama}) {
        const TrainSetup setup = five_steps(architecture, DType::F32);
        const TrainOutcome wanted = test::train(setup);
        const TrainOutcome found = on_cuda(setup, 1);
        CHECK(found.steps.size() == 5);
        CHECK(trace_difference(found, wanted) < 1e-4);
        CHECK(test::differing_tensors(found, wanted, 1e-4, {"k.bias"}).empty());
        CHECK(found.device_allocations_after_first_step == 0);
    }
}

TEST_CASE("one emulated device trains in bf16 as the cpu does", "[cuda]") {
    for (const Architecture architecture : {Architecture::Gpt2, Architecture::Llama}) {
        const TrainSetup setup = five_steps(architecture, DType::BF16);
        CHECK(trace_difference(on_cuda(setup, 1), test::train(setup)) < 2e-2);
    }
}

TEST_CASE("the emulated device's orders do not matter", "[cuda]") {
    const TrainSetup setup = five_steps(Architecture::Llama, DType::BF16);
    const TrainOutcome one = on_cuda(setup, 0);
    for (std::uint64_t seed = 1; seed < 4; ++seed) {
        const TrainOutcome other = on_cuda(setup, seed);
        CHECK(other.steps == one.steps);
        CHECK(other.state == one.state);
    }
}

TEST_CASE("emulated devices train together as one cpu does", "[cuda]") {
    struct Layout {
        int ranks;
        std::int64_t tensor, pipeline, zero;
    };
    for (const Layout& layout :
         {Layout{2, 1, 1, 1}, Layout{2, 1, 1, 2}, Layout{4, 1, 1, 3}, Layout{4, 2, 2, 1}}) {
        TrainSetup setup = five_steps(Architecture::Llama, DType::F32);
        const TrainOutcome wanted = test::train(setup);
        setup.ranks = layout.ranks;
        setup.job.parallel.tensor_parallel_size = layout.tensor;
        setup.job.parallel.pipeline_parallel_size = layout.pipeline;
        setup.job.memory.zero_stage = layout.zero;
        for (const CudaTransport transport : {CudaTransport::Nccl, CudaTransport::Host}) {
            const TrainOutcome found = on_cuda(setup, 3, transport);
            CAPTURE(layout.ranks, layout.zero, transport == CudaTransport::Nccl);
            CHECK(trace_difference(found, wanted) < 1e-4);
            CHECK(test::differing_tensors(found, wanted, 1e-4).empty());
            CHECK(found.drifted.empty());
        }
    }
}

}  // namespace trainctl::cuda_double
