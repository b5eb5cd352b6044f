// Short trainings on cuda devices: same job, same data, same weights as on the cpu device.
#pragma once

#include "train/train_harness.h"
#include "trainctl/comm/cuda_comm.h"
#include "trainctl/device/cuda_device.h"

namespace trainctl::cuda_test {

// A rank that computes on the device of its local rank; keeps that device.
std::shared_ptr<Rank> make_cuda_rank(World& world, CpuDevice& host, MeshShape shape, CudaTransport transport,
                                     CudaGraphs graphs = CudaGraphs::Off,
                                     F32Products f32 = F32Products::Exact);

test::TrainSetup five_steps(Architecture architecture, DType compute);

// By such ranks, on a machine started with `seed`.
test::TrainOutcome train_on_cuda(test::TrainSetup setup, std::uint64_t seed,
                                 CudaTransport transport = CudaTransport::Nccl,
                                 CudaGraphs graphs = CudaGraphs::Off);

// Largest relative difference of a loss or a gradient norm.
double trace_difference(const test::TrainOutcome& a, const test::TrainOutcome& b);

}  // namespace trainctl::cuda_test
