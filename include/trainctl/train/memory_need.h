// How much memory a rank will hold, known from a dry pass before a byte of it is allocated.
#pragma once

#include <cstdint>
#include <string>

#include "trainctl/config/job_spec.h"
#include "trainctl/data/loader.h"
#include "trainctl/train/dry_pass.h"

namespace trainctl {

struct MemoryNeed {
    // On the device.
    std::uint64_t batch_bytes = 0;  // grows with the micro-batch: activations and batches
    std::uint64_t state_bytes = 0;  // the rest: weights, gradients, optimizer, ...
    // In host memory beside it: what is read ahead, what copies and messages are staged in.
    std::uint64_t host_bytes = 0;
    std::uint64_t staging_bytes = 0;  // checkpoint.async: host memory for the copy that is being written
    [[nodiscard]] std::uint64_t device_bytes() const { return batch_bytes + state_bytes; }
    [[nodiscard]] std::uint64_t bytes() const { return device_bytes() + host_bytes + staging_bytes; }
};

// Of one rank, by its dry pass. `transport`: of its mesh.
MemoryNeed memory_need(const JobSpec& job, const DryPass& plan, const BatchLayout& layout,
                       MeshTransport transport);
// The same, with a dry pass made for it; `planned` and `transport` as for dry_pass(), whose Exit::Resource
// (beyond any machine) it throws as well.
MemoryNeed memory_need(const JobSpec& job, MeshShape shape, MeshPlace place, const BatchLayout& layout,
                       Ops planned, MeshTransport transport = MeshTransport::Processors);

// For people: what `ranks` ranks need in all of one memory (`host` names it), of which they may use
// `available` bytes, which is less, and what to change.
std::string describe_lack_of_memory(const MemoryNeed& need, int ranks, const std::string& host,
                                    std::uint64_t available, const JobSpec& job);

}  // namespace trainctl
