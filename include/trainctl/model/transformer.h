// The model: embedding, blocks, head with fused loss, run unit by unit over ParamSource and GradSink.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "trainctl/config/job_spec.h"
#include "trainctl/device/arena.h"
#include "trainctl/model/param.h"
#include "trainctl/model/param_source.h"
#include "trainctl/ops/ops.h"

namespace trainctl {

// What one micro-batch needs besides weights. Views stay valid until the stream has passed the call that took
// them.
struct MicroBatch {
    TensorView tokens;   // I32 [batch x length], device memory
    TensorView targets;  // I32 [batch x length]; negative: ignored
    std::int64_t batch = 0;
    std::int64_t length = 0;
    std::uint64_t first_sample = 0;  // global index of the first sample (dropout); samples are consecutive
};

struct ModelOptions {
    DType compute = DType::BF16;
    std::uint64_t seed = 0;            // dropout
    std::int64_t head_chunk_rows = 0;  // rows of logits that exist at once; 0: chosen from the vocabulary
    // Blocks 1, 1 + n, 1 + 2n, ... are recomputed in backward, to the same bits; n = checkpoint_every_blocks.
    GradientCheckpointing gradient_checkpointing = GradientCheckpointing::None;
    std::int64_t checkpoint_every_blocks = 1;
};

// Told where a training pass stands, for timing. Called by the thread that issues the work.
class PassObserver {
  public:
    virtual ~PassObserver() = default;
    // Everything up to and including the loss has been issued; only gradients remain.
    virtual void forward_issued() = 0;
};

// Everything a pass runs on. All references outlive the model.
struct Runtime {
    Ops ops;
    Arena& arena;
    Stream& compute;
    ParamSource& params;
    GradSink& grads;
    PassObserver* observer = nullptr;  // optional
};

// Thread rule: the rank's compute thread. Holds no weights and no activations of its own: activations live in
// the arena, tables (RoPE) in one Buffer made at construction. Several models may live in one process.
class Transformer {
  public:
    virtual ~Transformer() = default;
    // Forward, loss and backward of one micro-batch. Adds the sum of the target losses to loss_sum (F64[1],
    // Into as given). gradient_scale multiplies d loss at the logits: 1 / target tokens of the global batch x
    // loss scale.
    virtual void train_micro(Runtime& runtime, const MicroBatch& micro, float gradient_scale,
                             TensorView loss_sum, Into loss_into) = 0;
    // Forward and loss only, no dropout.
    virtual void evaluate_micro(Runtime& runtime, const MicroBatch& micro, TensorView loss_sum,
                                Into loss_into) = 0;

    [[nodiscard]] virtual const std::vector<ParamSpec>& parameters() const = 0;
    [[nodiscard]] virtual int units() const = 0;
};

std::unique_ptr<Transformer> make_transformer(Device& device, const ModelSpec& model,
                                              const ModelOptions& options, std::int64_t sequence_length);

}  // namespace trainctl
