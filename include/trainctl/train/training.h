// Everything one rank needs to train, wired from a job: the one place where the runtime's objects are made,
// used by the train and smoke commands, the benchmarks and the tests.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "trainctl/base/clock.h"
#include "trainctl/comm/world.h"
#include "trainctl/data/loader.h"
#include "trainctl/data/sample_stream.h"
#include "trainctl/ops/backends.h"
#include "trainctl/train/dry_pass.h"
#include "trainctl/train/step_runner.h"

namespace trainctl {

// One rank's machine room: device, world, mesh, streams, ops. Lives longer than any training on it.
class Rank {
  public:
    // Collective over the world. The device and the world must outlive it.
    Rank(CpuDevice& cpu, World& world, MeshShape shape);
    // The same on any device: its ops, and communicators for tensors in its memory.
    Rank(Device& device, std::unique_ptr<OpsBackend> backend, World& world, Mesh mesh);

    Device& device;
    World& world;
    Mesh mesh;
    std::unique_ptr<OpsBackend> backend;
    std::unique_ptr<Stream> compute;
    std::unique_ptr<Stream> communication;    // gradients and weights
    std::unique_ptr<Stream> exchange;         // activations and gradients between pipeline stages
    std::unique_ptr<Stream> tensor_messages;  // between ranks that share matrices
    Ranges* ranges;  // told what a training on it does; at first the device's tools, nullptr: nobody
};

// The mesh of a job over `world_size` ranks; Exit::Usage with the arithmetic if it does not fit.
MeshShape mesh_shape(const ParallelSpec& parallel, int world_size);

// Places where tests and benchmarks put something else between the runtime's parts.
struct TrainingHooks {
    std::function<Ops(Ops)> wrap_ops;
    std::function<std::unique_ptr<ZeroState>(std::unique_ptr<ZeroState>)> wrap_state;
};

// Model, arena, state and loaders of one job on one rank. Thread rule: the rank's compute thread.
class Training {
  public:
    // Plans (dry pass), then allocates. The weights are not initialised yet: state().initialise(seed) or a
    // load. `validation` may be nullptr. The streams must outlive it. `plan`: plan_rank()'s of the same rank
    // and job, where it has been made already.
    Training(Rank& rank, const JobSpec& job, const SampleStream& train, const SampleStream* validation,
             Clock& clock, const TrainingHooks& hooks = {}, std::optional<DryPass> plan = {});
    // Waits until no message reads or fills its memory any more (the weights of the last update may still be
    // on their way).
    ~Training();
    Training(const Training&) = delete;
    Training& operator=(const Training&) = delete;

    [[nodiscard]] const DryPass& plan() const { return plan_; }
    Transformer& model() { return *model_; }
    ZeroState& state() { return *state_; }
    StepRunner& runner() { return *runner_; }
    Loader& train_data() { return *train_data_; }
    Loader* validation_data() { return validation_data_.get(); }
    [[nodiscard]] const JobSpec& job() const { return job_; }

  private:
    Rank& rank_;
    JobSpec job_;
    DryPass plan_;
    std::unique_ptr<Transformer> model_;
    std::unique_ptr<ZeroState> state_;
    std::unique_ptr<Arena> arena_;
    std::unique_ptr<StageExecutor> executor_;
    std::unique_ptr<Loader> train_data_;
    std::unique_ptr<Loader> validation_data_;
    std::unique_ptr<StepRunner> runner_;
};

BatchLayout batch_layout(const JobSpec& job, const Mesh& mesh);

// The dry pass of this rank's part of the job.
DryPass plan_rank(Rank& rank, const JobSpec& job);

}  // namespace trainctl
