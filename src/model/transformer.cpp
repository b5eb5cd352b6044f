#include "trainctl/model/transformer.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "model/block.h"
#include "model/embedding.h"
#include "model/head.h"
#include "model/rope_table.h"
#include "trainctl/base/hash.h"
#include "trainctl/model/architecture.h"

namespace trainctl {
namespace {

// Blocks of a pipeline schedule will hold several; a pass of train_micro runs one at a time.
constexpr int micro_batches_in_flight = 1;

DropoutPlan dropout_plan(const ModelSpec& model, std::uint64_t seed) {
    const PhiloxBlock words = philox4x32(philox_key(seed), 0, name_hash("dropout"));
    return {static_cast<float>(model.dropout), {words[0], words[1]}};
}

// Of block number `layer`, from 0.
Keep kept(const ModelOptions& options, std::int64_t layer) {
    if (layer % options.checkpoint_every_blocks != 0) return Keep::Everything;
    switch (options.gradient_checkpointing) {
        case GradientCheckpointing::None:
            return Keep::Everything;
        case GradientCheckpointing::Selective:
            return Keep::Products;
        case GradientCheckpointing::Full:
            return Keep::Input;
    }
    return Keep::Everything;
}

class UnitTransformer final : public Transformer {
  public:
    UnitTransformer(Device& device, const ModelSpec& model, const ModelOptions& options,
                    std::int64_t sequence_length)
        : options_(options),
          statistics_(options.compute == DType::F64 ? DType::F64 : DType::F32),
          sequence_length_(sequence_length),
          tied_(model.tie_embeddings),
          dropout_(dropout_plan(model, options.seed)),
          params_(model_parameters(model)),
          embedding_(params_),
          head_(params_, model, options.head_chunk_rows) {
        const ArchitectureRow& row = architecture_row(model.architecture);
        if (row.positions == PositionKind::Rope) rope_.emplace(device, model, sequence_length, statistics_);
        blocks_.reserve(static_cast<std::size_t>(model.layers));
        for (std::int64_t layer = 0; layer < model.layers; ++layer) {
            blocks_.emplace_back(params_, model, static_cast<UnitId>(layer + 1), kept(options, layer),
                                 micro_batches_in_flight);
        }
        saved_.resize(blocks_.size());
    }

    void train_micro(Runtime& runtime, const MicroBatch& micro, float gradient_scale, TensorView loss_sum,
                     Into loss_into) override {
        const StepContext context = make_context(runtime, micro, PassMode::Train);
        for (Block& block : blocks_) block.clear();
        Carry carry = embed(runtime, context);
        for (UnitId unit = 1; unit < head_unit(); ++unit) {
            const Weights weights = acquire(runtime, unit, unit + 1);
            const std::size_t layer = static_cast<std::size_t>(unit - 1);
            saved_[layer] = blocks_[layer].forward(context, weights, carry, rope(context));
            runtime.params.release(unit, runtime.compute);
        }
        GradView embedding_grads;
        const TensorView d =
            train_head(runtime, context, carry, gradient_scale, {loss_sum, loss_into}, embedding_grads);
        if (runtime.observer != nullptr) runtime.observer->forward_issued();
        for (UnitId unit = head_unit() - 1; unit > 0; --unit) backward_block(runtime, context, unit, d);
        if (!tied_) embedding_grads = runtime.grads.grads(0, runtime.compute);
        embedding_.backward(context, embedding_grads, tied_ ? Into::Accumulate : embedding_grads.into, d);
        runtime.grads.ready(0, runtime.compute);
    }

    void evaluate_micro(Runtime& runtime, const MicroBatch& micro, TensorView loss_sum,
                        Into loss_into) override {
        const StepContext context = make_context(runtime, micro, PassMode::Evaluate);
        Carry carry = embed(runtime, context);
        for (UnitId unit = 1; unit < head_unit(); ++unit) {
            const Weights weights = acquire(runtime, unit, unit + 1);
            blocks_[static_cast<std::size_t>(unit - 1)].evaluate(context, weights, carry, rope(context));
            runtime.params.release(unit, runtime.compute);
        }
        const HeadWeights weights = acquire_head(runtime);
        head_.evaluate(context, weights.head, {weights.output, {}, Into::Overwrite}, carry,
                       {loss_sum, loss_into});
        release_head(runtime);
    }

    [[nodiscard]] const std::vector<ParamSpec>& parameters() const override { return params_; }
    [[nodiscard]] int units() const override { return head_unit() + 1; }

  private:
    struct HeadWeights {
        Weights head;
        TensorView output;
    };

    [[nodiscard]] UnitId head_unit() const { return static_cast<UnitId>(blocks_.size()) + 1; }

    StepContext make_context(Runtime& runtime, const MicroBatch& micro, PassMode mode) const {
        if (micro.batch < 1 || micro.length < 1 || micro.length > sequence_length_) {
            fail(Exit::Internal,
                 fmt::format("a micro-batch of {} x {} tokens for a model made for sequences of up to {}",
                             micro.batch, micro.length, sequence_length_));
        }
        return {runtime.ops, runtime.arena,    runtime.compute, micro,
                mode,        options_.compute, statistics_,     dropout_};
    }

    [[nodiscard]] TensorView rope(const StepContext& context) const {
        return rope_ ? rope_->view(context.micro.length) : TensorView{};
    }

    static Weights acquire(Runtime& runtime, UnitId unit, UnitId next) {
        const Weights weights = runtime.params.acquire(unit, runtime.compute);
        runtime.params.hint(next);
        return weights;
    }

    Carry embed(Runtime& runtime, const StepContext& context) {
        const Weights weights = acquire(runtime, 0, 1);
        const Carry carry = embedding_.forward(context, weights);
        runtime.params.release(0, runtime.compute);
        return carry;
    }

    HeadWeights acquire_head(Runtime& runtime) {
        HeadWeights weights;
        weights.head = runtime.params.acquire(head_unit(), runtime.compute);
        if (tied_) {
            runtime.params.hint(0);
            weights.output = embedding_.table(runtime.params.acquire(0, runtime.compute));
        } else {
            weights.output = weights.head.tensor(head_.output_place());
        }
        return weights;
    }

    void release_head(Runtime& runtime) {
        if (tied_) runtime.params.release(0, runtime.compute);
        runtime.params.release(head_unit(), runtime.compute);
    }

    // A tied matrix belongs to the embedding unit, whose gradients are asked for here, written first here,
    // and handed on through `embedding_grads` until the embedding has added its own.
    TensorView train_head(Runtime& runtime, const StepContext& context, Carry& carry, float gradient_scale,
                          const LossTarget& loss, GradView& embedding_grads) {
        const HeadWeights weights = acquire_head(runtime);
        runtime.params.hint(head_unit() - 1);
        OutputMatrix output{weights.output, {}, Into::Overwrite};
        if (tied_) {
            embedding_grads = runtime.grads.grads(0, runtime.compute);
            output.gradient = embedding_.table(embedding_grads.grads);
            output.into = embedding_grads.into;
        }
        const GradView grads = runtime.grads.grads(head_unit(), runtime.compute);
        if (!tied_) {
            output.gradient = grads.grads.tensor(head_.output_place());
            output.into = grads.into;
        }
        const TensorView d = head_.train(context, weights.head, grads, output, carry, gradient_scale, loss);
        release_head(runtime);
        runtime.grads.ready(head_unit(), runtime.compute);
        return d;
    }

    void backward_block(Runtime& runtime, const StepContext& context, UnitId unit, TensorView d) {
        const Weights weights = runtime.params.acquire(unit, runtime.compute);
        if (unit > 1) runtime.params.hint(unit - 1);  // the embedding's backward reads no weights
        const GradView grads = runtime.grads.grads(unit, runtime.compute);
        const auto layer = static_cast<std::size_t>(unit - 1);
        blocks_[layer].backward(context, weights, grads, std::move(saved_[layer]), d, rope(context));
        runtime.params.release(unit, runtime.compute);
        runtime.grads.ready(unit, runtime.compute);
    }

    ModelOptions options_;
    DType statistics_;
    std::int64_t sequence_length_;
    bool tied_;
    DropoutPlan dropout_;
    std::vector<ParamSpec> params_;
    Embedding embedding_;
    Head head_;
    std::optional<RopeTable> rope_;
    std::vector<Block> blocks_;
    std::vector<SavedRef> saved_;  // of the micro-batch in flight, one per block
};

}  // namespace

std::unique_ptr<Transformer> make_transformer(Device& device, const ModelSpec& model,
                                              const ModelOptions& options, std::int64_t sequence_length) {
    check_model(model);
    if (sequence_length < 1 ||
        (model.max_sequence_length > 0 && sequence_length > model.max_sequence_length)) {
        fail(Exit::Usage, fmt::format("training.sequence_length is {}, but the model's max_sequence_length "
                                      "is {}: shorten the sequences or enlarge the model's limit",
                                      sequence_length, model.max_sequence_length));
    }
    return std::make_unique<UnitTransformer>(device, model, options, sequence_length);
}

}  // namespace trainctl
