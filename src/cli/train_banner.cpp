#include "cli/train_banner.h"

#include <fmt/format.h>

#include "trainctl/base/text.h"
#include "trainctl/config/model_math.h"

namespace trainctl {

std::string start_banner(const JobSpec& job, const Rank& rank, const Training& training,
                         const std::string& data, double peak_flops_per_s) {
    const BatchLayout layout = batch_layout(job, rank.mesh);
    const DeviceInfo device = rank.device.info();
    std::string text = fmt::format("run {} in {}\n", job.name, job.run_dir);
    text += fmt::format(
        "  world      {} ranks = data {} x tensor {} x pipeline {}, ZeRO stage {}, {} gradient bucket(s)\n",
        rank.world.size(), rank.mesh.shape.data, rank.mesh.shape.tensor, rank.mesh.shape.pipeline,
        job.memory.zero_stage, training.plan().buckets);
    text += fmt::format(
        "  model      {} {} parameters, {} layers, hidden {}, vocabulary {} (padded {}), sequence {}\n",
        job.model.preset.empty() ? "custom" : job.model.preset, parameter_count(job.model), job.model.layers,
        job.model.hidden_size, job.model.vocab_size, job.model.padded_vocab_size(),
        job.training.sequence_length);
    text += fmt::format(
        "  batch      {} samples = micro {} x {} ranks x {} accumulated; {} tokens a step, {} steps\n",
        layout.global_batch, layout.micro_batch, layout.ranks, layout.micro_batches(),
        format_count(static_cast<double>(layout.global_batch * job.training.sequence_length)), job.steps);
    text += fmt::format("  precision  {} compute, f32 master, moments and gradients, {} reduction\n",
                        dtype_name(job.precision.compute), dtype_name(job.communication.reduce_dtype));
    text += fmt::format("  device     {} ({}), {} kernels, {} thread(s), peak {:.1f} GFLOP/s measured\n",
                        device.kind, device.name, device.isa, device.threads, peak_flops_per_s / 1e9);
    text += describe_memory(training.plan().memory);
    text += data;
    text += rank.world.size() > 1 ? "  to stop: kill -USR1 the mpirun process (saves after the step, exit "
                                    "3); INT and TERM leave ranks under a second"
                                  : "  to stop: INT, TERM or USR1 (saves after the step, exit 3)";
    return text;
}

std::string memory_verdict(const Training& training, std::uint64_t allocated) {
    const std::uint64_t planned = training.plan().device_bytes();
    if (allocated == planned)
        return fmt::format("after one step the allocator holds {} bytes, as planned", allocated);
    return fmt::format("after one step the allocator holds {} bytes, {} were planned: please report it",
                       allocated, planned);
}

}  // namespace trainctl
