#include "trainctl/train/dry_pass.h"

#include <fmt/format.h>

#include <algorithm>

#include "trainctl/base/text.h"
#include "trainctl/ops/backends.h"
#include "trainctl/train/batch_slots.h"

namespace trainctl {
namespace {

void add_row(std::vector<MemoryRow>& rows, const std::string& what, std::uint64_t bytes) {
    const auto at =
        std::find_if(rows.begin(), rows.end(), [&](const MemoryRow& row) { return row.what == what; });
    if (at == rows.end()) {
        rows.push_back({what, bytes});
    } else {
        at->bytes += bytes;
    }
}

}  // namespace

ModelOptions model_options(const JobSpec& job) {
    ModelOptions options;
    options.compute = job.precision.compute;
    options.seed = job.seed;
    options.gradient_checkpointing = job.memory.gradient_checkpointing;
    options.checkpoint_every_blocks = job.memory.checkpoint_every_blocks;
    return options;
}

ZeroOptions zero_options(const JobSpec& job) {
    ZeroOptions options;
    options.stage = job.memory.zero_stage;
    options.compute = job.precision.compute;
    options.reduce_dtype = job.communication.reduce_dtype;
    options.gradient_bucket_mb = job.communication.gradient_bucket_mb;
    options.overlap = job.communication.overlap_comm;
    return options;
}

std::uint64_t DryPass::device_bytes() const {
    std::uint64_t bytes = 0;
    for (const MemoryRow& row : memory) bytes += row.bytes;
    return bytes;
}

DryPass dry_pass(const JobSpec& job, MeshShape shape, MeshPlace place, const BatchLayout& layout,
                 Ops planned) {
    const auto device = make_sim_device(SimProfile{});
    const auto backend = make_sim_ops(*device, planned);
    const Ops ops = backend->ops();
    Mesh mesh = make_sim_mesh(*device, shape, place);
    const auto compute = device->make_stream("compute", StreamRole::Compute);
    const auto communication = device->make_stream("communication", StreamRole::Communication);
    const auto model = make_transformer(*device, job.model, model_options(job), job.training.sequence_length);
    const auto state = make_zero_state(*device, ops, {*mesh.data, mesh.tensor.get(), mesh.pipeline.get()},
                                       *compute, *communication, model->parameters(), zero_options(job));
    BatchSlots slots(*device, *compute, layout.micro_batch, job.training.sequence_length);
    const Buffer scalars = device->allocate(step_scalars * sizeof(double), Memory::Device, "step scalars");
    const auto arena = make_recording_arena();
    Runtime runtime{ops, *arena, *compute, state->params(), state->grads()};
    const TensorView loss = scalars.view(Shape{1}, DType::F64);
    const SimCounters before = device->counters();

    // Three micro-batches show every kind there is; all inner ones are alike.
    const std::int64_t micros = std::min<std::int64_t>(layout.micro_batches(), 3);
    for (std::int64_t micro = 0; micro < micros; ++micro) {
        state->grads().begin_micro(static_cast<int>(micro),
                                   micro == micros - 1 ? MicroKind::Last : MicroKind::Inner);
        arena->begin(pass_kind(micro, micros));
        model->train_micro(runtime, slots.upload(slots.next(), 0), 1.0F, loss,
                           micro == 0 ? Into::Overwrite : Into::Accumulate);
        arena->end();
    }
    state->update(scalars.view(Shape{step_scalars}, DType::F64), UpdateSettings{});
    DryPass result;
    result.step = device->counters();
    result.step.flops -= before.flops;
    result.step.bytes_moved -= before.bytes_moved;
    result.step.ops -= before.ops;
    result.step.messages -= before.messages;
    result.step.message_bytes -= before.message_bytes;

    arena->begin(PassKind::Evaluation);
    model->evaluate_micro(runtime, slots.upload(slots.next(), 0), loss, Into::Overwrite);
    arena->end();

    result.activations = arena->plan();
    result.buckets = state->buckets();
    for (const SimAllocation& allocation : device->live()) {
        if (allocation.memory == Memory::Device) add_row(result.memory, allocation.what, allocation.bytes);
    }
    add_row(result.memory, "activations", result.activations.peak_bytes);
    return result;
}

std::string describe_memory(const std::vector<MemoryRow>& rows) {
    std::uint64_t total = 0;
    std::string text = "memory of one rank\n";
    for (const MemoryRow& row : rows) {
        text += fmt::format("  {:<24} {:>16}  {}\n", row.what, row.bytes, format_bytes(row.bytes));
        total += row.bytes;
    }
    return text + fmt::format("  {:<24} {:>16}  {}\n", "total", total, format_bytes(total));
}

}  // namespace trainctl
