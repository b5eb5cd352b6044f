// First half of a block: norm, packed q,k,v product, rotary positions, attention, output product, dropout.
#pragma once

#include "model/linear.h"
#include "model/residual_norm.h"
#include "model/step_context.h"
#include "trainctl/config/job_spec.h"
#include "trainctl/model/tensor_partition.h"

namespace trainctl {

struct AttentionSaved {
    NormSaved norm;
    TensorView qkv;  // [M, (heads + 2 kv_heads) x head_dim] of this rank's heads, rotated
    TensorView out;  // [M, heads x head_dim]
    TensorView lse;  // [batch, heads, length]
};

class AttentionPart {
  public:
    AttentionPart(const UnitIndex& unit, const ModelSpec& model, const TensorPart& part, NormSettings norm);

    // The carry's branch becomes the output of this part. `rope_table` empty: positions were learned.
    // What `keep` leaves out is empty in the saved state.
    AttentionSaved forward(const StepContext& context, const Weights& weights, Carry& carry,
                           TensorView rope_table, Keep keep) const;
    // Of a state kept at least as Keep::Products. d[residual rows, C]: in, gradient of residual + branch
    // behind this part; out, of the sum in front of it.
    void backward(const StepContext& context, const Weights& weights, const GradView& grads,
                  AttentionSaved saved, TensorView d, TensorView rope_table) const;

  private:
    [[nodiscard]] AttentionSettings settings(const StepContext& context) const;
    void attend(const StepContext& context, AttentionSaved& saved) const;
    void attend_backward(const StepContext& context, const AttentionSaved& saved, TensorView dqkv,
                         TensorView dout) const;

    UnitId unit_;
    HeadPart heads_;
    std::int64_t head_dim_;
    ResidualNorm norm_;
    Linear qkv_;
    Linear output_;
};

}  // namespace trainctl
