#include "cuda/graphs/gathering_ops.h"

#include <type_traits>
#include <utility>

#include "cuda/graphs/section_graphs.h"
#include "cuda/stream.h"

namespace trainctl::cuda {
namespace {

// Where the calls of one family go.
template <class Family>
class Gate {
  public:
    // `products`: where the family keeps what its calls depend on beside their arguments; nullptr: nowhere.
    explicit Gate(Family& family, const Products* products = nullptr)
        : family_(family), products_(products) {}

    template <class... Parameters>
    void call(OpId op, void (Family::*function)(Stream&, Parameters...), Stream& stream,
              const std::type_identity_t<Parameters>&... arguments) {
        SectionGraphs* sections = gathered_by(stream);
        if (sections == nullptr) return (family_.*function)(stream, arguments...);
        const auto issue = [&family = family_, function, &stream, arguments...] {
            (family.*function)(stream, arguments...);
        };
        if (products_ != nullptr) return sections->gather(issue, op, products_->changes(), arguments...);
        sections->gather(issue, op, arguments...);
    }
    const Family& operator*() const { return family_; }

  private:
    Family& family_;
    const Products* products_;
};

class GatheringMatmul final : public MatmulOps {
  public:
    GatheringMatmul(MatmulOps& ops, const Products& products) : ops_(ops, &products) {}
    void forward(Stream& stream, TensorView y, TensorView x, TensorView w, TensorView bias,
                 TensorView scratch) override {
        ops_.call(OpId::MatmulForward, &MatmulOps::forward, stream, y, x, w, bias, scratch);
    }
    void backward_input(Stream& stream, TensorView dx, TensorView dy, TensorView w, Into into,
                        TensorView scratch) override {
        ops_.call(OpId::MatmulBackwardInput, &MatmulOps::backward_input, stream, dx, dy, w, into, scratch);
    }
    void backward_weight(Stream& stream, TensorView dw, TensorView dy, TensorView x, Into into,
                         TensorView scratch) override {
        ops_.call(OpId::MatmulBackwardWeight, &MatmulOps::backward_weight, stream, dw, dy, x, into, scratch);
    }
    [[nodiscard]] std::size_t scratch_bytes(MatmulKind kind, std::int64_t m, std::int64_t n, std::int64_t k,
                                            DType dtype) const override {
        return (*ops_).scratch_bytes(kind, m, n, k, dtype);
    }

  private:
    Gate<MatmulOps> ops_;
};

class GatheringNorm final : public NormOps {
  public:
    explicit GatheringNorm(NormOps& ops) : ops_(ops) {}
    void forward(Stream& stream, TensorView y, TensorView residual_out, TensorView statistics,
                 TensorView residual_in, TensorView branch, TensorView gain, TensorView bias,
                 NormSettings settings) override {
        ops_.call(OpId::NormForward, &NormOps::forward, stream, y, residual_out, statistics, residual_in,
                  branch, gain, bias, settings);
    }
    void backward(Stream& stream, TensorView dresidual_in, TensorView dgain, TensorView dbias, TensorView dy,
                  TensorView dresidual_out, TensorView residual, TensorView statistics, TensorView gain,
                  Into into, NormSettings settings, TensorView scratch) override {
        ops_.call(OpId::NormBackward, &NormOps::backward, stream, dresidual_in, dgain, dbias, dy,
                  dresidual_out, residual, statistics, gain, into, settings, scratch);
    }
    [[nodiscard]] std::size_t backward_scratch_bytes(std::int64_t m, std::int64_t c,
                                                     DType dtype) const override {
        return (*ops_).backward_scratch_bytes(m, c, dtype);
    }

  private:
    Gate<NormOps> ops_;
};

class GatheringAttention final : public AttentionOps {
  public:
    explicit GatheringAttention(AttentionOps& ops) : ops_(ops) {}
    void forward(Stream& stream, TensorView out, TensorView lse, TensorView qkv, AttentionSettings settings,
                 TensorView scratch) override {
        ops_.call(OpId::AttentionForward, &AttentionOps::forward, stream, out, lse, qkv, settings, scratch);
    }
    void backward(Stream& stream, TensorView dqkv, TensorView dout, TensorView out, TensorView lse,
                  TensorView qkv, AttentionSettings settings, TensorView scratch) override {
        ops_.call(OpId::AttentionBackward, &AttentionOps::backward, stream, dqkv, dout, out, lse, qkv,
                  settings, scratch);
    }
    void rope(Stream& stream, TensorView qkv, TensorView table, AttentionSettings settings,
              RopeDirection direction) override {
        ops_.call(OpId::Rope, &AttentionOps::rope, stream, qkv, table, settings, direction);
    }
    [[nodiscard]] std::size_t forward_scratch_bytes(AttentionSettings settings, DType dtype) const override {
        return (*ops_).forward_scratch_bytes(settings, dtype);
    }
    [[nodiscard]] std::size_t backward_scratch_bytes(AttentionSettings settings, DType dtype) const override {
        return (*ops_).backward_scratch_bytes(settings, dtype);
    }

  private:
    Gate<AttentionOps> ops_;
};

class GatheringElementwise final : public ElementwiseOps {
  public:
    explicit GatheringElementwise(ElementwiseOps& ops) : ops_(ops) {}
    void bias_gelu_forward(Stream& stream, TensorView y, TensorView x, TensorView bias) override {
        ops_.call(OpId::BiasGeluForward, &ElementwiseOps::bias_gelu_forward, stream, y, x, bias);
    }
    void bias_gelu_backward(Stream& stream, TensorView dx, TensorView dbias, TensorView dy, TensorView x,
                            TensorView bias, Into into, TensorView scratch) override {
        ops_.call(OpId::BiasGeluBackward, &ElementwiseOps::bias_gelu_backward, stream, dx, dbias, dy, x, bias,
                  into, scratch);
    }
    void swiglu_forward(Stream& stream, TensorView y, TensorView gate_up) override {
        ops_.call(OpId::SwigluForward, &ElementwiseOps::swiglu_forward, stream, y, gate_up);
    }
    void swiglu_backward(Stream& stream, TensorView dgate_up, TensorView dy, TensorView gate_up) override {
        ops_.call(OpId::SwigluBackward, &ElementwiseOps::swiglu_backward, stream, dgate_up, dy, gate_up);
    }
    void bias_backward(Stream& stream, TensorView dbias, TensorView dy, Into into,
                       TensorView scratch) override {
        ops_.call(OpId::BiasBackward, &ElementwiseOps::bias_backward, stream, dbias, dy, into, scratch);
    }
    void add(Stream& stream, TensorView y, TensorView a, TensorView b) override {
        ops_.call(OpId::Add, &ElementwiseOps::add, stream, y, a, b);
    }
    void dropout(Stream& stream, TensorView y, TensorView x, std::int64_t rows_per_sample,
                 Dropout site) override {
        ops_.call(OpId::Dropout, &ElementwiseOps::dropout, stream, y, x, rows_per_sample, site);
    }
    void cast(Stream& stream, TensorView to, TensorView from) override {
        ops_.call(OpId::Cast, &ElementwiseOps::cast, stream, to, from);
    }
    void fill_zero(Stream& stream, TensorView x) override {
        ops_.call(OpId::FillZero, &ElementwiseOps::fill_zero, stream, x);
    }
    [[nodiscard]] std::size_t column_sum_scratch_bytes(std::int64_t m, std::int64_t n) const override {
        return (*ops_).column_sum_scratch_bytes(m, n);
    }

  private:
    Gate<ElementwiseOps> ops_;
};

class GatheringEmbedding final : public EmbeddingOps {
  public:
    explicit GatheringEmbedding(EmbeddingOps& ops) : ops_(ops) {}
    void forward(Stream& stream, TensorView x, TensorView tokens, TensorView table, TensorView positions,
                 std::int64_t length, std::int64_t first_row) override {
        ops_.call(OpId::EmbeddingForward, &EmbeddingOps::forward, stream, x, tokens, table, positions, length,
                  first_row);
    }
    void backward(Stream& stream, TensorView dtable, TensorView dpositions, TensorView dx, TensorView tokens,
                  std::int64_t length, std::int64_t first_row, Into table_into, Into positions_into,
                  TensorView scratch) override {
        ops_.call(OpId::EmbeddingBackward, &EmbeddingOps::backward, stream, dtable, dpositions, dx, tokens,
                  length, first_row, table_into, positions_into, scratch);
    }
    [[nodiscard]] std::size_t backward_scratch_bytes(std::int64_t m, std::int64_t rows) const override {
        return (*ops_).backward_scratch_bytes(m, rows);
    }

  private:
    Gate<EmbeddingOps> ops_;
};

class GatheringLoss final : public LossOps {
  public:
    explicit GatheringLoss(LossOps& ops) : ops_(ops) {}
    void cross_entropy(Stream& stream, TensorView losses, TensorView logits, TensorView targets,
                       LossSettings settings) override {
        ops_.call(OpId::CrossEntropy, &LossOps::cross_entropy, stream, losses, logits, targets, settings);
    }
    void row_maxima(Stream& stream, TensorView maxima, TensorView logits, LossSettings settings) override {
        ops_.call(OpId::RowMaxima, &LossOps::row_maxima, stream, maxima, logits, settings);
    }
    void exponential_sums(Stream& stream, TensorView sums, TensorView logits, TensorView maxima,
                          TensorView targets, LossSettings settings) override {
        ops_.call(OpId::ExponentialSums, &LossOps::exponential_sums, stream, sums, logits, maxima, targets,
                  settings);
    }
    void finish_cross_entropy(Stream& stream, TensorView losses, TensorView logits, TensorView maxima,
                              TensorView sums, TensorView targets, LossSettings settings) override {
        ops_.call(OpId::FinishCrossEntropy, &LossOps::finish_cross_entropy, stream, losses, logits, maxima,
                  sums, targets, settings);
    }
    void sum_losses(Stream& stream, TensorView total, TensorView losses, Into into) override {
        ops_.call(OpId::SumLosses, &LossOps::sum_losses, stream, total, losses, into);
    }

  private:
    Gate<LossOps> ops_;
};

class GatheringOptimizer final : public OptimizerOps {
  public:
    explicit GatheringOptimizer(OptimizerOps& ops) : ops_(ops) {}
    void sum_squares(Stream& stream, TensorView bins, TensorView gradient, Into into) override {
        ops_.call(OpId::SumSquares, &OptimizerOps::sum_squares, stream, bins, gradient, into);
    }
    void finish_norm(Stream& stream, TensorView scalars, TensorView bins, double max_norm,
                     double inverse_loss_scale) override {
        ops_.call(OpId::FinishNorm, &OptimizerOps::finish_norm, stream, scalars, bins, max_norm,
                  inverse_loss_scale);
    }
    void adamw(Stream& stream, TensorView weights, TensorView master, TensorView m, TensorView v,
               TensorView gradient, TensorView flags, TensorView scalars, AdamwSettings settings) override {
        ops_.call(OpId::Adamw, &OptimizerOps::adamw, stream, weights, master, m, v, gradient, flags, scalars,
                  settings);
    }

  private:
    Gate<OptimizerOps> ops_;
};

class GatheringOps final : public OpsBackend {
  public:
    GatheringOps(std::unique_ptr<OpsBackend> ops, const Products& products)
        : ops_(std::move(ops)), matmul_(ops_->ops().matmul, products) {}
    [[nodiscard]] Ops ops() override {
        return {matmul_, norm_, attention_, elementwise_, embedding_, loss_, optimizer_};
    }
    [[nodiscard]] ProductPlans* product_plans() override { return ops_->product_plans(); }

  private:
    std::unique_ptr<OpsBackend> ops_;
    GatheringMatmul matmul_;
    GatheringNorm norm_{ops_->ops().norm};
    GatheringAttention attention_{ops_->ops().attention};
    GatheringElementwise elementwise_{ops_->ops().elementwise};
    GatheringEmbedding embedding_{ops_->ops().embedding};
    GatheringLoss loss_{ops_->ops().loss};
    GatheringOptimizer optimizer_{ops_->ops().optimizer};
};

}  // namespace

std::unique_ptr<OpsBackend> make_gathering_ops(std::unique_ptr<OpsBackend> ops, const Products& products) {
    return std::make_unique<GatheringOps>(std::move(ops), products);
}

}  // namespace trainctl::cuda
