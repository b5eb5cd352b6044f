// Trains a tiny job on ranks that are threads of this process, through the very objects that `trainctl train`
// wires.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainctl/base/file_system.h"
#include "trainctl/train/run_checkpoints.h"
#include "trainctl/train/trainer.h"
#include "trainctl/train/training.h"

namespace trainctl::test {

// 2 layers, hidden 32, 4 heads, vocabulary 97, T = 16, fp32; global batch 8, micro-batch 2 on one rank.
JobSpec tiny_job(Architecture architecture);

// Adam magnifies the rounding of a gradient that happens to lie below epsilon by lr / epsilon; of thousands
// of elements a few always do. An epsilon above that rounding makes the comparison one of trainings.
JobSpec calm_job(Architecture architecture);

// Updates of finite gradients that leave weights which are not finite.
void make_updates_far_too_large(JobSpec& job);

struct TrainSetup {
    JobSpec job;
    int ranks = 1;
    int threads = 1;
    std::optional<std::uint64_t> late_seed;         // streams run as late as events allow
    std::int64_t steps = 0;                         // train until this many steps are done; 0: job.steps
    FileSystem* files = nullptr;                    // checkpoints go here; nullptr: none are made
    std::function<FileSystem&(int rank)> files_of;  // instead of it: what each rank sees
    Reach reach = Reach::Everybody;                 // of root
    Nodes nodes;
    std::vector<CopyTarget> copies;  // further places
    std::string root;                // checkpoint root
    int attempt = 1;
    Clock* clock = nullptr;            // default: the system's
    std::optional<ResumeMode> resume;  // load the newest first
    // Instead of a random draw: the weights of a checkpoint below this root in `files`, or whole tensors.
    std::optional<std::string> start_from;
    const std::map<std::string, std::vector<float>>* weights = nullptr;
    const SampleStream* data = nullptr;  // default: a synthetic language over the job's vocabulary
    const SampleStream* validation = nullptr;
    std::function<TrainingHooks(int rank)> hooks;
    // Another device than the rank's processor; what it keeps lives as long as the rank.
    std::function<std::shared_ptr<Rank>(World& world, CpuDevice& host, MeshShape shape)> make_rank;
    // What a rank's steps record of its GPU.
    std::function<GpuRecord(int rank)> gpu;
    // Called at every rank before training and at every step boundary (Trainer's check).
    std::function<void(int rank, StopFlag& stop, std::int64_t step)> at_boundary;
    // What the trainer saves through instead of the rank's own writer.
    std::function<std::shared_ptr<CheckpointWriter>(int rank, CheckpointWriter& own)> writer;
    // Called at a rank whose training ended by an error.
    std::function<void(int rank, RunCheckpoints& checkpoints)> after_error;
};

struct TracedStep {
    double loss = 0.0;
    double grad_norm = 0.0;
    double lr = 0.0;
    bool applied = true;
    std::optional<double> loss_scale;
    // To the bit, so that the norm of a skipped step equals itself.
    bool operator==(const TracedStep& other) const;
};

struct TrainOutcome {
    Exit exit = Exit::Ok;
    Progress progress;
    std::vector<TracedStep> steps;  // of this attempt, as rank 0 saw them
    std::vector<std::vector<TracedStep>> steps_of_rank;
    std::vector<double> evaluations;
    std::vector<CheckpointRecord> saves;  // of this attempt
    std::vector<CopyRecord> copies;       // the same
    std::map<std::string, std::vector<float>>
        state;  // whole logical tensors: "<name>", "<name>.m", "<name>.v"
    std::vector<std::string> log;
    std::uint64_t device_allocations_after_first_step = 0;  // rank 0
    std::vector<std::string>
        drifted;  // tensors of which a rank holds other values than the one that saves them
    std::vector<std::string> off_plan;  // ranks whose device holds other memory than the dry pass said
    SimCounters planned_step;           // rank 0: of one training step
    StepRecord last_record;             // rank 0
};

// The first error of any rank is rethrown after all have ended.
TrainOutcome train(const TrainSetup& setup);

// Trains until `stop` steps are done and saves, then a second attempt loads that and trains to the end; what
// the second saw. setup.files, root, steps, resume and attempt are set here.
TrainOutcome train_interrupted(TrainSetup setup, std::int64_t stop);

// Tensors that differ by more than `tolerance` relative to the tensor's largest magnitude; empty: none.
// `exempt`: substrings of names.
std::vector<std::string> differing_tensors(const TrainOutcome& a, const TrainOutcome& b, double tolerance,
                                           const std::vector<std::string>& exempt = {});

}  // namespace trainctl::test
