#include "trainctl/train/dry_pass.h"

#include <fmt/format.h>

#include <algorithm>

#include "trainctl/base/text.h"
#include "trainctl/ops/backends.h"
#include "trainctl/train/batch_slots.h"
#include "trainctl/train/host_slices.h"
#include "trainctl/train/stage_executor.h"

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

std::vector<MemoryRow> with_total(std::vector<MemoryRow> rows) {
    std::uint64_t total = 0;
    for (const MemoryRow& row : rows) total += row.bytes;
    rows.push_back({"total", total});
    return rows;
}

ResidualRows residual_rows(const ParallelSpec& parallel) {
    return parallel.sequence_parallel ? ResidualRows::Sharded : ResidualRows::All;
}

}  // namespace

ModelOptions model_options(const JobSpec& job, Communicator& tensor, Stream& tensor_messages) {
    ModelOptions options;
    options.compute = job.precision.compute;
    options.seed = job.seed;
    options.gradient_checkpointing = job.memory.gradient_checkpointing;
    options.checkpoint_every_blocks = job.memory.checkpoint_every_blocks;
    options.tensor = {&tensor, &tensor_messages, residual_rows(job.parallel)};
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

ZeroAxes zero_axes(const JobSpec& job, const Mesh& mesh) {
    Communicator* embedding = job.model.tie_embeddings ? mesh.embedding.get() : nullptr;
    return {*mesh.data, mesh.tensor.get(), mesh.pipeline.get(), embedding};
}

Shape activation_shape(const JobSpec& job, const BatchLayout& layout) {
    const TensorPart part{static_cast<int>(job.parallel.tensor_parallel_size), 0,
                          residual_rows(job.parallel)};
    return {part.residual_rows(layout.micro_batch * job.training.sequence_length), job.model.hidden_size};
}

std::uint64_t DryPass::device_bytes() const {
    std::uint64_t bytes = 0;
    for (const MemoryRow& row : memory) bytes += row.bytes;
    return bytes;
}

DryPass dry_pass(const JobSpec& job, MeshShape shape, MeshPlace place, const BatchLayout& layout, Ops planned,
                 MeshTransport transport) {
    const auto device = make_sim_device(SimProfile{});
    std::set<Product> products;
    const auto backend = make_sim_ops(*device, planned, &products);
    const Ops ops = backend->ops();
    Mesh mesh = make_sim_mesh(*device, shape, place, transport);
    const auto compute = device->make_stream("compute", StreamRole::Compute);
    const auto communication = device->make_stream("communication", StreamRole::Communication);
    const auto exchange = device->make_stream("pipeline", StreamRole::Communication);
    // Where micro-batches are recorded one by one, three show every kind there is: all inner ones are alike.
    BatchLayout recorded = layout;
    if (shape.pipeline == 1)
        recorded.global_batch =
            std::min<std::int64_t>(layout.micro_batches(), 3) * layout.ranks * layout.micro_batch;
    const StagePlan stage = plan_stage(job, shape, place, recorded);
    const auto tensor_messages = device->make_stream("tensor", StreamRole::Communication);
    const auto model =
        make_transformer(*device, job.model, model_options(job, *mesh.tensor, *tensor_messages),
                         job.training.sequence_length, stage.units);
    const auto state = make_zero_state(*device, ops, zero_axes(job, mesh), *compute, *communication,
                                       model->parameters(), zero_options(job));
    BatchSlots slots(*device, *compute, layout.micro_batch, job.training.sequence_length,
                     stage.micro_batches_held);
    const Buffer scalars = device->allocate(step_scalars * sizeof(double), Memory::Device, "step scalars");
    const Buffer scalars_host =
        device->allocate(step_scalars * sizeof(double), Memory::Pinned, "step scalars");
    const auto arena = make_recording_arena();
    StageExecutor executor({*device, *model, *mesh.pipeline, *exchange}, stage, activation_shape(job, layout),
                           job.precision.compute);
    Runtime runtime{ops, *arena, *compute, state->params(), state->grads()};
    const LossRequest loss{scalars.view(Shape{1}, DType::F64), Into::Accumulate};
    const auto load = [&slots](int /*micro*/) { return slots.upload(slots.next(), 0); };
    const SimCounters before = device->counters();

    executor.train(runtime, load, loss);
    state->update(scalars.view(Shape{step_scalars}, DType::F64), UpdateSettings{});
    DryPass result;
    result.step = device->counters();
    result.step.flops -= before.flops;
    result.step.bytes_moved -= before.bytes_moved;
    result.step.ops -= before.ops;
    result.step.messages -= before.messages;
    result.step.message_bytes -= before.message_bytes;

    executor.evaluate(runtime, load, loss);

    result.activations = arena->plan();
    result.buckets = state->buckets();
    result.staging_bytes = staging_bytes(state->state_slices());
    result.products.assign(products.begin(), products.end());
    for (const SimAllocation& allocation : device->live()) {
        if (allocation.memory == Memory::Device) {
            add_row(result.memory, allocation.what, allocation.bytes);
        } else {
            result.pinned_bytes += allocation.bytes;
        }
    }
    add_row(result.memory, "activations", result.activations.peak_bytes);
    return result;
}

std::string describe_memory(const std::vector<std::vector<MemoryRow>>& stages) {
    if (stages.size() == 1) {
        std::string text = "memory of one rank\n";
        for (const MemoryRow& row : with_total(stages.front()))
            text += fmt::format("  {:<24} {:>16}  {}\n", row.what, row.bytes, format_bytes(row.bytes));
        return text;
    }
    constexpr std::size_t most_columns = 8;
    std::vector<std::size_t> shown;
    for (std::size_t stage = 0; stage < stages.size(); ++stage)
        if (stage + 1 < most_columns || stage + 1 == stages.size()) shown.push_back(stage);
    std::vector<MemoryRow> names;  // stages do not all have the same rows
    for (const auto& rows : stages)
        for (const MemoryRow& row : rows) add_row(names, row.what, 0);
    std::string text = fmt::format("memory of one rank, by pipeline stage\n  {:<24}", "");
    for (const std::size_t stage : shown) text += fmt::format(" {:>16}", stage);
    text += '\n';
    for (const MemoryRow& name : with_total(names)) {
        text += fmt::format("  {:<24}", name.what);
        for (const std::size_t stage : shown) {
            const std::vector<MemoryRow> rows = with_total(stages[stage]);
            const auto at = std::find_if(rows.begin(), rows.end(),
                                         [&](const MemoryRow& row) { return row.what == name.what; });
            text += fmt::format(" {:>16}", at == rows.end() ? 0 : at->bytes);
        }
        text += '\n';
    }
    return text;
}

}  // namespace trainctl
