// The model: embedding, blocks, head with fused loss, run unit by unit over ParamSource and GradSink.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "trainctl/config/job_spec.h"
#include "trainctl/device/arena.h"
#include "trainctl/model/param.h"
#include "trainctl/model/param_source.h"
#include "trainctl/model/tensor_axis.h"
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
    TensorAxis tensor;  // ranks that share the matrices; by default nobody
};

// Everything a pass runs on. All references outlive the model.
struct Runtime {
    Ops ops;
    Arena& arena;
    Stream& compute;
    ParamSource& params;
    GradSink& grads;
    Ranges* ranges = nullptr;  // optional
};

// What one rank computes of a model: of a pipeline its stage's parts, in the order in which a forward passes
// them; else one part with every unit.
struct StageUnits {
    std::vector<UnitRun> parts;
    int in_flight = 1;  // micro-batches of one part between their forward and their backward, at most
};

// One micro-batch in flight: which part of the rank's, and which of that part's saved states.
struct Flight {
    int part = 0;
    int slot = 0;
};

// Where the losses go, and how much a loss counts.
struct LossRequest {
    TensorView sum;  // F64[1]: the sum of the target losses
    Into into = Into::Overwrite;
    // Multiplies d loss at the logits: 1 / target tokens of the global batch x loss scale.
    float gradient_scale = 1.0F;
};

// Tells runtime.ranges phases (the head, with its loss, counts as forward) and, within them, units; flushes
// the compute stream in front of each unit. Thread rule: the rank's compute thread. Holds no weights and no
// activations of its own: activations live in the arena, tables (RoPE) in one Buffer made at construction.
// Several models may live in one process.
//
// Between parts travels one tensor [M,C] of the compute dtype in the arena: forward, the sum that the next
// part's first norm normalises; backward, the gradient of that sum. A part takes over the tensor it is given;
// the one it returns is the caller's to release. The part with the embedding takes no input and returns no
// gradient (empty), the part with the head the other way round.
class Transformer {
  public:
    virtual ~Transformer() = default;
    // Forgets micro-batches in flight, which an exception may have left behind.
    virtual void forget_flights() = 0;
    // The head, which is one step with its own backward, is left to backward().
    virtual TensorView forward(Runtime& runtime, const MicroBatch& micro, Flight flight,
                               TensorView input) = 0;
    // The micro-batch given to forward() with the same flight. `loss` is used by the part with the head.
    virtual TensorView backward(Runtime& runtime, const MicroBatch& micro, Flight flight, TensorView d,
                                const LossRequest& loss) = 0;
    // Forward and, in the part with the head, loss; no dropout, nothing in flight.
    virtual TensorView evaluate(Runtime& runtime, const MicroBatch& micro, int part, TensorView input,
                                const LossRequest& loss) = 0;

    // Of this rank's units, as it holds them (tensor_partition.h). What another rank counts and saves (the
    // copy of a tied matrix beside the head of a pipeline) is not primary.
    [[nodiscard]] virtual const std::vector<ParamSpec>& parameters() const = 0;

    // A whole model's forward, loss and backward (evaluate_micro: forward and loss) of one micro-batch.
    void train_micro(Runtime& runtime, const MicroBatch& micro, float gradient_scale, TensorView loss_sum,
                     Into loss_into);
    void evaluate_micro(Runtime& runtime, const MicroBatch& micro, TensorView loss_sum, Into loss_into);
};

// The whole model as one part.
StageUnits whole_model(const ModelSpec& model);

std::unique_ptr<Transformer> make_transformer(Device& device, const ModelSpec& model,
                                              const ModelOptions& options, std::int64_t sequence_length,
                                              const StageUnits& stage);
std::unique_ptr<Transformer> make_transformer(Device& device, const ModelSpec& model,
                                              const ModelOptions& options, std::int64_t sequence_length);

}  // namespace trainctl
