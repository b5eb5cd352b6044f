#include "cuda/cuda_training.h"

#include <algorithm>
#include <cmath>

#include "cuda/cuda_bench.h"
#include "support/larger.h"
#include "trainctl/device/cuda_device.h"

namespace trainctl::cuda_test {
namespace {

using test::TrainOutcome;
using test::TrainSetup;

// A rank and the device it computes on, by local rank.
struct CudaRank {
    CudaRank(World& world, CpuDevice& host, MeshShape shape, CudaTransport transport, CudaGraphs graphs,
             F32Products f32)
        : device(make_cuda_device(world.local_rank(), graphs)),
          rank(*device, make_cuda_ops(*device, f32), world,
               make_cuda_mesh(make_mesh(world, shape), *device, host, {transport, 30.0, {}})) {}
    std::unique_ptr<Device> device;
    Rank rank;
};

}  // namespace

std::shared_ptr<Rank> make_cuda_rank(World& world, CpuDevice& host, MeshShape shape, CudaTransport transport,
                                     CudaGraphs graphs, F32Products f32) {
    const auto both = std::make_shared<CudaRank>(world, host, shape, transport, graphs, f32);
    return {both, &both->rank};
}

TrainSetup five_steps(Architecture architecture, DType compute) {
    TrainSetup setup;
    setup.job = test::calm_job(architecture);
    setup.job.steps = 5;
    setup.job.schedule.warmup_steps = 2;
    setup.job.precision.compute = compute;
    return setup;
}

TrainOutcome train_on_cuda(TrainSetup setup, std::uint64_t seed, CudaTransport transport, CudaGraphs graphs) {
    start_cuda_machine(seed);
    setup.make_rank = [transport, graphs](World& world, CpuDevice& host, MeshShape shape) {
        return make_cuda_rank(world, host, shape, transport, graphs);
    };
    return test::train(setup);
}

double trace_difference(const TrainOutcome& a, const TrainOutcome& b) {
    double worst = a.steps.size() == b.steps.size() ? 0.0 : INFINITY;
    for (std::size_t i = 0; i < a.steps.size() && i < b.steps.size(); ++i) {
        worst = std::max(worst, std::abs(a.steps[i].loss - b.steps[i].loss) / b.steps[i].loss);
        worst =
            test::larger(worst, std::abs(a.steps[i].grad_norm - b.steps[i].grad_norm) / b.steps[i].grad_norm);
    }
    return worst;
}

}  // namespace trainctl::cuda_test
