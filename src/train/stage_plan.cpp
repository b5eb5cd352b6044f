#include "trainctl/train/stage_plan.h"

#include "trainctl/parallel/pipeline_stages.h"

namespace trainctl {

StagePlan plan_stage(const JobSpec& job, MeshShape shape, MeshPlace place, const BatchLayout& layout) {
    PipelineShape pipeline;
    pipeline.order = job.parallel.pipeline_schedule == "interleaved" ? PipelineOrder::Interleaved
                                                                     : PipelineOrder::OneForwardOneBackward;
    pipeline.stages = shape.pipeline;
    pipeline.parts = static_cast<int>(job.parallel.virtual_stages);
    pipeline.micro_batches = static_cast<int>(layout.micro_batches());

    StagePlan plan;
    plan.training = pipeline_schedule(pipeline, place.pipeline);
    pipeline.pass = PipelinePass::Evaluate;
    plan.evaluation = pipeline_schedule(pipeline, place.pipeline);
    const auto parts =
        pipeline_parts(job.model, job.training.sequence_length, pipeline.stages * pipeline.parts);
    plan.units = {stage_parts(parts, place.pipeline, pipeline.stages), flight_slots(plan.training)};
    plan.micro_batches = pipeline.micro_batches;
    plan.micro_batches_held = micro_batches_held(plan.training);
    plan.span = pipeline.stages == 1 ? PassSpan::MicroBatch : PassSpan::Step;
    return plan;
}

}  // namespace trainctl
