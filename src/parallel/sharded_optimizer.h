// Norm, clip and AdamW on what this rank holds, then publishing the new weights: all issued, never waited
// for.
#pragma once

#include <memory>

#include "parallel/bucketed_reducer.h"
#include "parallel/model_memory.h"
#include "parallel/published_params.h"

namespace trainctl {

class ShardedOptimizer {
  public:
    ShardedOptimizer(const ShardPlan& plan, const ModelMemory& memory, const GradientMemory& gradients,
                     PublishedParams& params, Device& device, Ops ops, const ZeroAxes& axes, Stream& compute,
                     Stream& communication);

    // After BucketedReducer::finish(). scalars: F64[step_scalars] device memory; its loss sum becomes the sum
    // over the data axis.
    void update(TensorView scalars, const UpdateSettings& settings);
    // Masters changed (initialised or loaded): rounds them into the weights and publishes.
    void publish_masters();

  private:
    // Gradients of a unit that both end stages of a pipeline hold: this rank's held range of them.
    void add_ends();
    // Sums of squares of what this rank owns and counts, added over all ranks, and the loss likewise.
    void reduce_norm_and_loss(TensorView scalars);

    const ShardPlan& plan_;
    const ModelMemory& memory_;
    const GradientMemory& gradients_;
    PublishedParams& params_;
    Ops ops_;
    ZeroAxes axes_;
    Stream& compute_;
    Stream& communication_;
    std::unique_ptr<Event> computed_;
    std::unique_ptr<Event> summed_;
};

}  // namespace trainctl
