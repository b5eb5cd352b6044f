// What one rank of a job computes, and in which order: pure data.
#pragma once

#include <vector>

#include "trainctl/comm/world.h"
#include "trainctl/config/job_spec.h"
#include "trainctl/data/loader.h"
#include "trainctl/model/transformer.h"
#include "trainctl/parallel/pipeline_schedule.h"

namespace trainctl {

// What one pass of the activation arena covers. Without a pipeline no tensor outlives its micro-batch.
enum class PassSpan : std::uint8_t { MicroBatch, Step };

struct StagePlan {
    StageUnits units;
    std::vector<PipelineAction> training;    // of one step
    std::vector<PipelineAction> evaluation;  // of one global batch
    int micro_batches = 1;
    int micro_batches_held = 1;  // at once, in training: their tokens are kept
    PassSpan span = PassSpan::MicroBatch;
};

// Exit::Usage with the numbers if the model or the batch does not fit the pipeline.
StagePlan plan_stage(const JobSpec& job, MeshShape shape, MeshPlace place, const BatchLayout& layout);

}  // namespace trainctl
