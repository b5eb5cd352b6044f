#include "trainctl/model/transformer.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "model/block.h"
#include "model/embedding.h"
#include "model/head.h"
#include "model/rope_table.h"
#include "trainctl/base/hash.h"
#include "trainctl/model/architecture.h"
#include "trainctl/model/tensor_partition.h"

namespace trainctl {
namespace {

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

// Of the units that a rank holds. The output matrix of a tied model is a copy of unit 0 where that unit
// belongs to another stage.
std::vector<ParamSpec> stage_parameters(const std::vector<ParamSpec>& all, const ModelSpec& model,
                                        const StageUnits& stage) {
    const auto head = static_cast<UnitId>(model.layers + 1);
    const auto part_of = [&stage](UnitId unit) {
        const auto found = std::find_if(stage.parts.begin(), stage.parts.end(),
                                        [unit](const UnitRun& run) { return run.contains(unit); });
        return found == stage.parts.end() ? -1 : static_cast<int>(found - stage.parts.begin());
    };
    std::vector<ParamSpec> held;
    for (ParamSpec param : all) {
        param.part = part_of(param.unit);
        if (param.part < 0 && param.unit == 0 && model.tie_embeddings) {
            param.part = part_of(head);
            param.primary = false;
        }
        if (param.part >= 0) held.push_back(std::move(param));
    }
    return held;
}

// The work of one unit in one direction. What came before it is handed over first, so that a stream that
// gathers hands over each unit's work together.
class UnitScope {
  public:
    UnitScope(const Runtime& runtime, RangeKind kind, UnitId number = 0)
        : range_(runtime.ranges, kind, number) {
        runtime.compute.flush();
    }

  private:
    RangeScope range_;
};

class UnitTransformer final : public Transformer {
  public:
    UnitTransformer(Device& device, const ModelSpec& model, const ModelOptions& options,
                    std::int64_t sequence_length, const StageUnits& stage)
        : UnitTransformer(device, model, options, sequence_length, stage,
                          tensor_parameters(model, options.tensor.part())) {}

    void forget_flights() override {
        for (Part& part : parts_)
            for (Block& block : part.blocks) block.clear();
    }

    TensorView forward(Runtime& runtime, const MicroBatch& micro, Flight flight, TensorView input) override {
        const RangeScope phase(runtime.ranges, RangeKind::Forward);
        const StepContext context = make_context(runtime, micro, PassMode::Train);
        Part& part = part_of(flight.part);
        State& state = part.flights[static_cast<std::size_t>(flight.slot)];
        state.carry = begin(runtime, context, part, input);
        for (std::size_t index = 0; index < part.blocks.size(); ++index) {
            const UnitId unit = part.first_block + static_cast<UnitId>(index);
            const UnitScope scope(runtime, RangeKind::Block, unit);
            const Weights weights = acquire(runtime, part, unit, unit + 1);
            state.saved[index] = part.blocks[index].forward(context, weights, state.carry, rope(context));
            runtime.params.release(unit, runtime.compute);
        }
        return has_head(part) ? TensorView{} : sum(context, state.carry);
    }

    TensorView backward(Runtime& runtime, const MicroBatch& micro, Flight flight, TensorView d,
                        const LossRequest& loss) override {
        const StepContext context = make_context(runtime, micro, PassMode::Train);
        Part& part = part_of(flight.part);
        State& state = part.flights[static_cast<std::size_t>(flight.slot)];
        GradView embedding_grads;
        if (has_head(part)) {
            const RangeScope phase(runtime.ranges, RangeKind::Forward);
            d = train_head(runtime, context, part, state.carry, loss, embedding_grads);
        }
        const RangeScope phase(runtime.ranges, RangeKind::Backward);
        for (std::size_t index = part.blocks.size(); index > 0; --index)
            backward_block(runtime, context, part, state, index - 1, d);
        if (!part.run.contains(0)) return d;
        const UnitScope scope(runtime, RangeKind::Embedding);
        const bool after_head = tied_ && has_head(part);
        if (!after_head) embedding_grads = runtime.grads.grads(0, runtime.compute);
        embedding_.backward(context, embedding_grads, after_head ? Into::Accumulate : embedding_grads.into,
                            d);
        runtime.grads.ready(0, runtime.compute);
        return {};
    }

    TensorView evaluate(Runtime& runtime, const MicroBatch& micro, int index, TensorView input,
                        const LossRequest& loss) override {
        const StepContext context = make_context(runtime, micro, PassMode::Evaluate);
        Part& part = part_of(index);
        Carry carry = begin(runtime, context, part, input);
        for (std::size_t block = 0; block < part.blocks.size(); ++block) {
            const UnitId unit = part.first_block + static_cast<UnitId>(block);
            const UnitScope scope(runtime, RangeKind::Block, unit);
            const Weights weights = acquire(runtime, part, unit, unit + 1);
            part.blocks[block].evaluate(context, weights, carry, rope(context));
            runtime.params.release(unit, runtime.compute);
        }
        if (!has_head(part)) return sum(context, carry);
        const UnitScope scope(runtime, RangeKind::Head);
        const HeadWeights weights = acquire_head(runtime);
        head_.evaluate(context, weights.head, {weights.output, {}, Into::Overwrite}, carry,
                       {loss.sum, loss.into});
        release_head(runtime);
        return {};
    }

    [[nodiscard]] const std::vector<ParamSpec>& parameters() const override { return params_; }

  private:
    // Of one micro-batch between forward and backward.
    struct State {
        std::vector<SavedRef> saved;  // by block
        Carry carry;                  // in front of the head
    };
    struct Part {
        UnitRun run;
        UnitId first_block = 1;
        std::vector<Block> blocks;
        std::vector<State> flights;
    };
    struct HeadWeights {
        Weights head;
        TensorView output;
    };

    UnitTransformer(Device& device, const ModelSpec& model, const ModelOptions& options,
                    std::int64_t sequence_length, const StageUnits& stage, const std::vector<ParamSpec>& all)
        : options_(options),
          statistics_(options.compute == DType::F64 ? DType::F64 : DType::F32),
          sequence_length_(sequence_length),
          tied_(model.tie_embeddings),
          head_unit_(static_cast<UnitId>(model.layers + 1)),
          dropout_(dropout_plan(model, options.seed)),
          tensor_(device, options.tensor),
          params_(stage_parameters(all, model, stage)),
          positions_(UnitIndex(all, 0).find("positions.weight")),
          embedding_(all),
          head_(all, model, options.head_chunk_rows) {
        const ArchitectureRow& row = architecture_row(model.architecture);
        if (row.positions == PositionKind::Rope) rope_.emplace(device, model, sequence_length, statistics_);
        for (const UnitRun& run : stage.parts) {
            Part& part = parts_.emplace_back();
            part.run = run;
            part.first_block = std::max(run.begin, 1);
            const UnitId end = std::min(run.end, head_unit_);
            for (UnitId unit = part.first_block; unit < end; ++unit)
                part.blocks.emplace_back(all, model, tensor_.part(), unit, kept(options, unit - 1),
                                         stage.in_flight);
            part.flights.resize(static_cast<std::size_t>(stage.in_flight));
            for (State& state : part.flights) state.saved.resize(part.blocks.size());
        }
    }

    Part& part_of(int index) { return parts_[static_cast<std::size_t>(index)]; }
    [[nodiscard]] bool has_head(const Part& part) const { return part.run.contains(head_unit_); }

    StepContext make_context(Runtime& runtime, const MicroBatch& micro, PassMode mode) const {
        if (micro.batch < 1 || micro.length < 1 || micro.length > sequence_length_) {
            fail(Exit::Internal,
                 fmt::format("a micro-batch of {} x {} tokens for a model made for sequences of up to {}",
                             micro.batch, micro.length, sequence_length_));
        }
        return {runtime.ops,      runtime.arena, runtime.compute, micro,  mode,
                options_.compute, statistics_,   dropout_,        tensor_};
    }

    [[nodiscard]] TensorView rope(const StepContext& context) const {
        return rope_ ? rope_->view(context.micro.length) : TensorView{};
    }

    // `next` is hinted if this part computes it: what comes after a part is the schedule's affair.
    static Weights acquire(Runtime& runtime, const Part& part, UnitId unit, UnitId next) {
        const Weights weights = runtime.params.acquire(unit, runtime.compute);
        if (part.run.contains(next)) runtime.params.hint(next);
        return weights;
    }

    // The carry in front of the first block.
    Carry begin(Runtime& runtime, const StepContext& context, const Part& part, TensorView input) {
        invariant(input.empty() == part.run.contains(0), "a part without the embedding needs an input");
        if (!part.run.contains(0)) return {input, {}, ResidualOwner::Carry};
        const UnitScope scope(runtime, RangeKind::Embedding);
        const Weights weights = acquire(runtime, part, 0, 1);
        const Carry carry = embedding_.forward(context, weights);
        runtime.params.release(0, runtime.compute);
        return carry;
    }

    // The carry as one tensor: what the next norm would have added, with the same bits.
    static TensorView sum(const StepContext& context, Carry& carry) {
        const Carry whole = std::exchange(carry, {});
        if (whole.branch.empty()) return whole.residual;
        context.ops.elementwise.add(context.stream, whole.branch, whole.residual, whole.branch);
        if (whole.owner == ResidualOwner::Carry) context.release(whole.residual);
        return whole.branch;
    }

    HeadWeights acquire_head(Runtime& runtime) {
        HeadWeights weights;
        weights.head = runtime.params.acquire(head_unit_, runtime.compute);
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
        runtime.params.release(head_unit_, runtime.compute);
    }

    // A tied matrix belongs to the embedding unit, whose gradients are asked for here, written first here,
    // and handed on through `embedding_grads` until the embedding has added its own. An embedding on another
    // stage adds its own there.
    TensorView train_head(Runtime& runtime, const StepContext& context, const Part& part, Carry& carry,
                          const LossRequest& loss, GradView& embedding_grads) {
        const UnitScope scope(runtime, RangeKind::Head);
        const HeadWeights weights = acquire_head(runtime);
        if (!part.blocks.empty()) runtime.params.hint(head_unit_ - 1);
        OutputMatrix output{weights.output, {}, Into::Overwrite};
        if (tied_) {
            embedding_grads = runtime.grads.grads(0, runtime.compute);
            output.gradient = embedding_.table(embedding_grads.grads);
            output.into = embedding_grads.into;
        }
        const GradView grads = runtime.grads.grads(head_unit_, runtime.compute);
        if (!tied_) {
            output.gradient = grads.grads.tensor(head_.output_place());
            output.into = grads.into;
        }
        const TensorView d = head_.train(context, weights.head, grads, output, carry, loss.gradient_scale,
                                         {loss.sum, loss.into});
        release_head(runtime);
        runtime.grads.ready(head_unit_, runtime.compute);
        if (tied_ && !part.run.contains(0)) finish_copy(runtime, embedding_grads);
        return d;
    }

    // Of what else is in the copy of unit 0, the head has no gradient.
    void finish_copy(Runtime& runtime, const GradView& grads) const {
        if (positions_ != no_place && grads.into == Into::Overwrite)
            runtime.ops.elementwise.fill_zero(runtime.compute, grads.grads.tensor(positions_));
        runtime.grads.ready(0, runtime.compute);
    }

    void backward_block(Runtime& runtime, const StepContext& context, Part& part, State& state,
                        std::size_t index, TensorView d) {
        const UnitId unit = part.first_block + static_cast<UnitId>(index);
        const UnitScope scope(runtime, RangeKind::Block, unit);
        const Weights weights = runtime.params.acquire(unit, runtime.compute);
        if (index > 0) runtime.params.hint(unit - 1);  // the embedding's backward reads no weights
        const GradView grads = runtime.grads.grads(unit, runtime.compute);
        part.blocks[index].backward(context, weights, grads, std::move(state.saved[index]), d, rope(context));
        runtime.params.release(unit, runtime.compute);
        runtime.grads.ready(unit, runtime.compute);
    }

    ModelOptions options_;
    DType statistics_;
    std::int64_t sequence_length_;
    bool tied_;
    UnitId head_unit_;
    DropoutPlan dropout_;
    TensorRanks tensor_;
    std::vector<ParamSpec> params_;
    int positions_;  // place of the position table in unit 0
    Embedding embedding_;
    Head head_;
    std::optional<RopeTable> rope_;
    std::vector<Part> parts_;
};

}  // namespace

void Transformer::train_micro(Runtime& runtime, const MicroBatch& micro, float gradient_scale,
                              TensorView loss_sum, Into loss_into) {
    forget_flights();
    forward(runtime, micro, {}, {});
    backward(runtime, micro, {}, {}, {loss_sum, loss_into, gradient_scale});
}

void Transformer::evaluate_micro(Runtime& runtime, const MicroBatch& micro, TensorView loss_sum,
                                 Into loss_into) {
    evaluate(runtime, micro, 0, {}, {loss_sum, loss_into});
}

StageUnits whole_model(const ModelSpec& model) { return {{{0, static_cast<UnitId>(model.layers + 2)}}, 1}; }

std::unique_ptr<Transformer> make_transformer(Device& device, const ModelSpec& model,
                                              const ModelOptions& options, std::int64_t sequence_length,
                                              const StageUnits& stage) {
    check_model(model);
    if (sequence_length < 1 ||
        (model.max_sequence_length > 0 && sequence_length > model.max_sequence_length)) {
        fail(Exit::Usage, fmt::format("training.sequence_length is {}, but the model's max_sequence_length "
                                      "is {}: shorten the sequences or enlarge the model's limit",
                                      sequence_length, model.max_sequence_length));
    }
    return std::make_unique<UnitTransformer>(device, model, options, sequence_length, stage);
}

std::unique_ptr<Transformer> make_transformer(Device& device, const ModelSpec& model,
                                              const ModelOptions& options, std::int64_t sequence_length) {
    return make_transformer(device, model, options, sequence_length, whole_model(model));
}

}  // namespace trainctl
