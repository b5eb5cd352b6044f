#include "trainctl/train/memory_need.h"

#include <fmt/format.h>

#include "trainctl/base/text.h"

namespace trainctl {

MemoryNeed memory_need(const JobSpec& job, MeshShape shape, MeshPlace place, const BatchLayout& layout,
                       Ops planned, MeshTransport transport) {
    return memory_need(job, dry_pass(job, shape, place, layout, planned, transport), layout, transport);
}

MemoryNeed memory_need(const JobSpec& job, const DryPass& plan, const BatchLayout& layout,
                       MeshTransport transport) {
    const std::uint64_t loaders = job.training.eval_interval > 0 ? 2 : 1;
    MemoryNeed need;
    // What has memory of its own is copied in any case.
    if (job.checkpoint.async || transport != MeshTransport::Processors)
        need.staging_bytes = plan.staging_bytes;
    need.host_bytes = plan.pinned_bytes + loaders * loader_bytes(layout, job.training.sequence_length,
                                                                 {job.data.prefetch_batches});
    for (const MemoryRow& row : plan.memory) {
        const bool grows = row.what == "activations" || row.what == "batches";
        (grows ? need.batch_bytes : need.state_bytes) += row.bytes;
    }
    return need;
}

std::string describe_lack_of_memory(const MemoryNeed& need, int ranks, const std::string& host,
                                    std::uint64_t available, const JobSpec& job) {
    const auto exact = [](std::uint64_t bytes) {
        return fmt::format("{} ({} bytes)", format_bytes(bytes), bytes);
    };
    const bool staged = need.staging_bytes > 0;
    return fmt::format(
        "{} rank{} on {} need{} {}: {} for activations and batches, {} for weights, gradients and "
        "optimizer{}{}; "
        "{} may be "
        "used there. {}ower training.micro_batch_size (now {}) or training.sequence_length (now {}), set "
        "memory.gradient_checkpointing = \"full\", or raise memory.zero_stage with ranks on more machines",
        ranks, ranks == 1 ? "" : "s", host, ranks == 1 ? "s" : "", exact(need.bytes()),
        format_bytes(need.batch_bytes), format_bytes(need.state_bytes),
        need.host_bytes == 0
            ? std::string()
            : fmt::format(", {} to read ahead and to stage messages", format_bytes(need.host_bytes)),
        staged ? fmt::format(", {} for the copy that a checkpoint is written from",
                             format_bytes(need.staging_bytes))
               : std::string(),
        exact(available), staged && job.checkpoint.async ? "Set checkpoint.async = false, l" : "L",
        job.training.micro_batch_size, job.training.sequence_length);
}

}  // namespace trainctl
