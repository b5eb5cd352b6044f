// One training step and one evaluation pass of the real runtime on the sim device: it plans the activation
// arena and yields the memory table before a byte is allocated.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainctl/comm/world.h"
#include "trainctl/config/job_spec.h"
#include "trainctl/data/loader.h"
#include "trainctl/device/arena.h"
#include "trainctl/device/sim_device.h"
#include "trainctl/model/transformer.h"
#include "trainctl/ops/product_plans.h"
#include "trainctl/parallel/zero.h"

namespace trainctl {

// `tensor`, `tensor_messages`: ranks that share matrices, and the stream of their messages.
ModelOptions model_options(const JobSpec& job, Communicator& tensor, Stream& tensor_messages);
ZeroOptions zero_options(const JobSpec& job);
ZeroAxes zero_axes(const JobSpec& job, const Mesh& mesh);
// What travels between the stages of a pipeline.
Shape activation_shape(const JobSpec& job, const BatchLayout& layout);

struct DryPass {
    ArenaPlan activations;
    std::vector<MemoryRow> memory;    // device memory of one rank by owner, activations included
    std::uint64_t pinned_bytes = 0;   // host memory beside it
    std::uint64_t staging_bytes = 0;  // what a copy of this rank's state for a checkpoint takes
    SimCounters step;                 // of one training step of this rank
    int buckets = 0;
    std::vector<Product> products;  // every kind of matrix product, in order
    [[nodiscard]] std::uint64_t device_bytes() const;
};

// `planned` are the ops of the run being planned (their scratch sizes count), `transport` is that of its mesh
// (what it stages counts). No communication, no memory.
DryPass dry_pass(const JobSpec& job, MeshShape shape, MeshPlace place, const BatchLayout& layout, Ops planned,
                 MeshTransport transport = MeshTransport::Processors);

// The memory table for people: of one rank, or of one rank of each pipeline stage (of many stages the first
// ones and the last).
std::string describe_memory(const std::vector<std::vector<MemoryRow>>& stages);

}  // namespace trainctl
