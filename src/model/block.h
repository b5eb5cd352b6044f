// One Transformer block: attention part and MLP part around the residual stream.
#pragma once

#include "model/attention_part.h"
#include "model/mlp_part.h"
#include "model/saved_slots.h"

namespace trainctl {

class Block {
  public:
    // `keep`: of a training pass. `in_flight`: micro-batches whose states exist at once.
    Block(const std::vector<ParamSpec>& params, const ModelSpec& model, const TensorPart& part, UnitId unit,
          Keep keep, int in_flight);

    SavedRef forward(const StepContext& context, const Weights& weights, Carry& carry, TensorView rope_table);
    void evaluate(const StepContext& context, const Weights& weights, Carry& carry, TensorView rope_table);
    // d[residual rows, C]: in, gradient behind the block; out, in front of it. Writes every gradient of the
    // unit.
    void backward(const StepContext& context, const Weights& weights, const GradView& grads,
                  SavedRef&& consumed, TensorView d, TensorView rope_table);
    // Takes back the states of a pass that ended in an exception.
    void clear() { saved_.clear(); }

  private:
    struct Saved {
        AttentionSaved attention;
        MlpSaved mlp;
    };

    // Everything again from the sum in front of the block.
    void recompute(const StepContext& context, const Weights& weights, Saved& saved,
                   TensorView rope_table) const;

    Keep keep_;
    AttentionPart attention_;
    MlpPart mlp_;
    SavedSlots<Saved> saved_;
};

}  // namespace trainctl
