#include "trainctl/train/training.h"

#include <exception>

#include "trainctl/config/batch.h"

namespace trainctl {

Rank::Rank(CpuDevice& cpu, World& rank_world, MeshShape shape)
    : Rank(cpu, make_cpu_ops(cpu), rank_world, make_mesh(rank_world, shape)) {}

Rank::Rank(Device& rank_device, std::unique_ptr<OpsBackend> rank_backend, World& rank_world, Mesh rank_mesh)
    : device(rank_device),
      world(rank_world),
      mesh(std::move(rank_mesh)),
      backend(std::move(rank_backend)),
      compute(rank_device.make_stream("compute", StreamRole::Compute)),
      communication(rank_device.make_stream("communication", StreamRole::Communication)),
      exchange(rank_device.make_stream("pipeline", StreamRole::Communication)),
      tensor_messages(rank_device.make_stream("tensor", StreamRole::Communication)),
      ranges(rank_device.ranges()) {}

MeshShape mesh_shape(const ParallelSpec& parallel, int world_size) {
    MeshShape shape;
    shape.data = static_cast<int>(data_parallel_ranks(parallel, world_size).value());
    shape.tensor = static_cast<int>(parallel.tensor_parallel_size);
    shape.pipeline = static_cast<int>(parallel.pipeline_parallel_size);
    return shape;
}

BatchLayout batch_layout(const JobSpec& job, const Mesh& mesh) {
    BatchLayout layout;
    layout.global_batch = job.training.global_batch_size;
    layout.micro_batch = job.training.micro_batch_size;
    layout.ranks = mesh.shape.data;
    layout.rank = mesh.place.data;
    return layout;
}

DryPass plan_rank(Rank& rank, const JobSpec& job) {
    return dry_pass(job, rank.mesh.shape, rank.mesh.place, batch_layout(job, rank.mesh), rank.backend->ops(),
                    rank.mesh.transport);
}

Training::Training(Rank& rank, const JobSpec& job, const SampleStream& train, const SampleStream* validation,
                   Clock& clock, const TrainingHooks& hooks, std::optional<DryPass> plan)
    : rank_(rank), job_(job) {
    const BatchLayout layout = batch_layout(job, rank.mesh);
    check_layout(layout);
    const Ops ops = hooks.wrap_ops ? hooks.wrap_ops(rank.backend->ops()) : rank.backend->ops();
    plan_ = plan ? *std::move(plan)
                 : dry_pass(job, rank.mesh.shape, rank.mesh.place, layout, ops, rank.mesh.transport);
    // So that no step has to look one up.
    if (ProductPlans* plans = rank.backend->product_plans()) plans->prepare(plan_.products);
    const StagePlan stage = plan_stage(job, rank.mesh.shape, rank.mesh.place, layout);
    model_ =
        make_transformer(rank.device, job.model, model_options(job, *rank.mesh.tensor, *rank.tensor_messages),
                         job.training.sequence_length, stage.units);
    state_ = make_zero_state(rank.device, ops, zero_axes(job, rank.mesh), *rank.compute, *rank.communication,
                             model_->parameters(), zero_options(job));
    if (hooks.wrap_state) state_ = hooks.wrap_state(std::move(state_));
    arena_ = make_replay_arena(rank.device, plan_.activations);
    executor_ = std::make_unique<StageExecutor>(
        ExecutorParts{rank.device, *model_, *rank.mesh.pipeline, *rank.exchange}, stage,
        activation_shape(job, layout), job.precision.compute);
    const LoaderOptions loading{job.data.prefetch_batches};
    train_data_ = std::make_unique<Loader>(train, layout, loading, clock);
    if (validation != nullptr)
        validation_data_ = std::make_unique<Loader>(*validation, layout, loading, clock);
    runner_ = std::make_unique<StepRunner>(
        StepParts{rank.device, ops, *rank.compute, *rank.communication, *rank.mesh.data, *rank.mesh.pipeline,
                  *arena_, *executor_, *state_, clock, rank.ranges},
        job, layout, stage.micro_batches_held);
}

Training::~Training() {
    if (std::uncaught_exceptions() > 0) return;  // the rank is ending: peers may never answer
    try {
        rank_.exchange->synchronize();
        rank_.communication->synchronize();
        rank_.compute->synchronize();
    } catch (const Error&) {
        // A peer was lost: whoever waits for a result hears of it.
    }
}

}  // namespace trainctl
