// How much memory activations may take, from the dimensions of a model alone. Independent of the arena and of
// the layers' code on purpose: it is what they are judged by.
#pragma once

#include <cstdint>

#include "trainctl/config/job_spec.h"
#include "trainctl/ops/ops.h"

namespace trainctl {

// Bytes on one rank without tensor or pipeline parallelism.
struct ActivationBound {
    std::uint64_t kept_per_block = 0;  // what a block leaves for its backward
    // A block in its backward: everything it computed, gradients, and the largest scratch of an op.
    std::uint64_t live_block = 0;
    // The last norm, logits of at most 1024 rows, gradients and scratch.
    std::uint64_t head = 0;

    // The blocks before the live one, or all of them and the head.
    [[nodiscard]] std::uint64_t total(std::int64_t blocks) const;
};

// Every block checkpointed as job.memory says; the job's micro-batch.
ActivationBound activation_bound(const JobSpec& job, Ops planned);

}  // namespace trainctl
