// What the layers of one pass run on, and small owners of arena memory.
#pragma once

#include <cstdint>
#include <optional>

#include "model/tensor_ranks.h"
#include "trainctl/device/arena.h"
#include "trainctl/model/transformer.h"
#include "trainctl/ops/ops.h"

namespace trainctl {

enum class PassMode {
    Train,     // dropout
    Evaluate,  // no dropout, and no backward follows
};

// Places of dropout within a unit: site = unit x 8 + place.
enum class DropoutPlace : std::uint32_t { Embedding = 0, Attention = 1, AttentionOutput = 2, MlpOutput = 3 };

// Pseudo-random masks of a run: a key of their own, so that no mask shares bits with an initial weight.
struct DropoutPlan {
    float probability = 0.0F;
    PhiloxKey key;
};

struct StepContext {
    Ops ops;
    Arena& arena;
    Stream& stream;
    const MicroBatch& micro;
    PassMode mode;
    DType compute;     // activations and weights
    DType statistics;  // norm statistics, softmax denominators, losses
    DropoutPlan dropout;
    const TensorRanks& tensor;

    // M: rows of every activation matrix between column- and row-parallel products.
    [[nodiscard]] std::int64_t rows() const { return micro.batch * micro.length; }
    // Rows of the residual stream (and norms, branches) on this rank: all of them, or its share.
    [[nodiscard]] std::int64_t residual_rows() const { return tensor.residual_rows(rows()); }
    [[nodiscard]] bool training() const { return mode == PassMode::Train; }
    // Activation [rows, columns] in the arena; release with release().
    [[nodiscard]] TensorView activation(std::int64_t columns) const {
        return arena.tensor(Shape{rows(), columns}, compute);
    }
    // The same for the residual stream.
    [[nodiscard]] TensorView residual_activation(std::int64_t columns) const {
        return arena.tensor(Shape{residual_rows(), columns}, compute);
    }
    // Token id of the first of this rank's `rows` rows of a vocabulary table.
    [[nodiscard]] std::int64_t first_token(std::int64_t rows) const { return tensor.part().rank * rows; }
    void release(const TensorView& view) const { arena.release(view.data); }
    // Releases it and leaves it empty.
    void drop(TensorView& view) const {
        release(view);
        view = {};
    }
    // Nothing outside training and without dropout: then the calls of a block are the same for every
    // micro-batch, which is what CUDA graphs live on.
    [[nodiscard]] Dropout dropout_at(UnitId unit, DropoutPlace place) const {
        if (!training() || dropout.probability == 0.0F) return {};
        return {dropout.probability, dropout.key,
                static_cast<std::uint32_t>(unit) * 8U + static_cast<std::uint32_t>(place), micro.first_sample,
                0};
    }
    // Of a matrix of residual rows.
    [[nodiscard]] Dropout residual_dropout_at(UnitId unit, DropoutPlace place) const {
        Dropout site = dropout_at(unit, place);
        if (site.probability > 0.0F) site.first_row = tensor.first_residual_row(rows());
        return site;
    }
};

// Scratch of one op call; no allocation at all where the backend asks for none.
class Scratch {
  public:
    Scratch(const StepContext& context, std::size_t bytes) {
        if (bytes > 0) held_.emplace(context.arena, bytes);
    }
    [[nodiscard]] TensorView view() const { return held_ ? held_->view() : TensorView{}; }

  private:
    std::optional<ArenaScope> held_;
};

// Who releases the carry's residual.
enum class ResidualOwner : std::uint8_t {
    Carry,  // the norm that adds to it
    Saved,  // the backward of the layer part that wrote it: it is part of that part's saved state
};

// The residual stream between two layers. Its value is residual + branch: the addition is left to the next
// norm, which reads both anyway.
struct Carry {
    TensorView residual;  // [M,C]
    TensorView branch;    // [M,C], owned by the carry; empty behind the embedding
    ResidualOwner owner = ResidualOwner::Carry;
};

}  // namespace trainctl
