#include "trainctl/bench/op_recorder.h"

#include <algorithm>
#include <utility>

namespace trainctl {
namespace {

class Recording {
  public:
    explicit Recording(Clock& clock) : clock_(clock) {}

    void start() { on_ = true; }
    std::vector<OpCall> stop() {
        on_ = false;
        return std::exchange(calls_, {});
    }

    template <class Call>
    void operator()(Stream& stream, std::string_view name, double flops, const Call& call) {
        if (!on_) return call();
        stream.synchronize();
        const double began = clock_.monotonic_s();
        call();
        stream.synchronize();
        calls_.push_back({name, flops, clock_.monotonic_s() - began, call});
    }

  private:
    Clock& clock_;
    bool on_ = false;
    std::vector<OpCall> calls_;
};

double product_flops(std::int64_t m, std::int64_t n, std::int64_t k) {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}

struct RecordedMatmul final : MatmulOps {
    RecordedMatmul(MatmulOps& next, Recording& log) : to(next), record(log) {}
    MatmulOps& to;
    Recording& record;

    void forward(Stream& stream, TensorView y, TensorView x, TensorView w, TensorView bias,
                 TensorView scratch) override {
        record(stream, "matmul.forward", product_flops(x.shape[0], w.shape[0], w.shape[1]),
               [=, this, &stream] { to.forward(stream, y, x, w, bias, scratch); });
    }
    void backward_input(Stream& stream, TensorView dx, TensorView dy, TensorView w, Into into,
                        TensorView scratch) override {
        record(stream, "matmul.backward_input", product_flops(dy.shape[0], w.shape[0], w.shape[1]),
               [=, this, &stream] { to.backward_input(stream, dx, dy, w, into, scratch); });
    }
    void backward_weight(Stream& stream, TensorView dw, TensorView dy, TensorView x, Into into,
                         TensorView scratch) override {
        record(stream, "matmul.backward_weight", product_flops(dy.shape[0], dy.shape[1], x.shape[1]),
               [=, this, &stream] { to.backward_weight(stream, dw, dy, x, into, scratch); });
    }
    [[nodiscard]] std::size_t scratch_bytes(MatmulKind kind, std::int64_t m, std::int64_t n, std::int64_t k,
                                            DType dtype) const override {
        return to.scratch_bytes(kind, m, n, k, dtype);
    }
};

struct RecordedNorm final : NormOps {
    RecordedNorm(NormOps& next, Recording& log) : to(next), record(log) {}
    NormOps& to;
    Recording& record;

    void forward(Stream& stream, TensorView y, TensorView residual_out, TensorView statistics,
                 TensorView residual_in, TensorView branch, TensorView gain, TensorView bias,
                 NormSettings settings) override {
        record(stream, "norm.forward", 0.0, [=, this, &stream] {
            to.forward(stream, y, residual_out, statistics, residual_in, branch, gain, bias, settings);
        });
    }
    void backward(Stream& stream, TensorView dresidual_in, TensorView dgain, TensorView dbias, TensorView dy,
                  TensorView dresidual_out, TensorView residual, TensorView statistics, TensorView gain,
                  Into into, NormSettings settings, TensorView scratch) override {
        record(stream, "norm.backward", 0.0, [=, this, &stream] {
            to.backward(stream, dresidual_in, dgain, dbias, dy, dresidual_out, residual, statistics, gain,
                        into, settings, scratch);
        });
    }
    [[nodiscard]] std::size_t backward_scratch_bytes(std::int64_t m, std::int64_t c,
                                                     DType dtype) const override {
        return to.backward_scratch_bytes(m, c, dtype);
    }
};

struct RecordedAttention final : AttentionOps {
    RecordedAttention(AttentionOps& next, Recording& log) : to(next), record(log) {}
    AttentionOps& to;
    Recording& record;

    void forward(Stream& stream, TensorView out, TensorView lse, TensorView qkv, AttentionSettings settings,
                 TensorView scratch) override {
        record(stream, "attention.forward", 0.0,
               [=, this, &stream] { to.forward(stream, out, lse, qkv, settings, scratch); });
    }
    void backward(Stream& stream, TensorView dqkv, TensorView dout, TensorView out, TensorView lse,
                  TensorView qkv, AttentionSettings settings, TensorView scratch) override {
        record(stream, "attention.backward", 0.0,
               [=, this, &stream] { to.backward(stream, dqkv, dout, out, lse, qkv, settings, scratch); });
    }
    [[nodiscard]] std::size_t forward_scratch_bytes(AttentionSettings settings, DType dtype) const override {
        return to.forward_scratch_bytes(settings, dtype);
    }
    [[nodiscard]] std::size_t backward_scratch_bytes(AttentionSettings settings, DType dtype) const override {
        return to.backward_scratch_bytes(settings, dtype);
    }
    void rope(Stream& stream, TensorView qkv, TensorView table, AttentionSettings settings,
              RopeDirection direction) override {
        record(stream, "attention.rope", 0.0,
               [=, this, &stream] { to.rope(stream, qkv, table, settings, direction); });
    }
};

struct RecordedElementwise final : ElementwiseOps {
    RecordedElementwise(ElementwiseOps& next, Recording& log) : to(next), record(log) {}
    ElementwiseOps& to;
    Recording& record;

    void bias_gelu_forward(Stream& stream, TensorView y, TensorView x, TensorView bias) override {
        record(stream, "gelu.forward", 0.0, [=, this, &stream] { to.bias_gelu_forward(stream, y, x, bias); });
    }
    void bias_gelu_backward(Stream& stream, TensorView dx, TensorView dbias, TensorView dy, TensorView x,
                            TensorView bias, Into into, TensorView scratch) override {
        record(stream, "gelu.backward", 0.0,
               [=, this, &stream] { to.bias_gelu_backward(stream, dx, dbias, dy, x, bias, into, scratch); });
    }
    void swiglu_forward(Stream& stream, TensorView y, TensorView gate_up) override {
        record(stream, "swiglu.forward", 0.0, [=, this, &stream] { to.swiglu_forward(stream, y, gate_up); });
    }
    void swiglu_backward(Stream& stream, TensorView dgate_up, TensorView dy, TensorView gate_up) override {
        record(stream, "swiglu.backward", 0.0,
               [=, this, &stream] { to.swiglu_backward(stream, dgate_up, dy, gate_up); });
    }
    void bias_backward(Stream& stream, TensorView dbias, TensorView dy, Into into,
                       TensorView scratch) override {
        record(stream, "bias.backward", 0.0,
               [=, this, &stream] { to.bias_backward(stream, dbias, dy, into, scratch); });
    }
    [[nodiscard]] std::size_t column_sum_scratch_bytes(std::int64_t m, std::int64_t n) const override {
        return to.column_sum_scratch_bytes(m, n);
    }
    void add(Stream& stream, TensorView y, TensorView a, TensorView b) override {
        record(stream, "add", 0.0, [=, this, &stream] { to.add(stream, y, a, b); });
    }
    void dropout(Stream& stream, TensorView y, TensorView x, std::int64_t rows_per_sample,
                 Dropout site) override {
        record(stream, "dropout", 0.0,
               [=, this, &stream] { to.dropout(stream, y, x, rows_per_sample, site); });
    }
    void cast(Stream& stream, TensorView target, TensorView from) override {
        record(stream, "cast", 0.0, [=, this, &stream] { to.cast(stream, target, from); });
    }
    void fill_zero(Stream& stream, TensorView x) override {
        record(stream, "fill_zero", 0.0, [=, this, &stream] { to.fill_zero(stream, x); });
    }
};

struct RecordedEmbedding final : EmbeddingOps {
    RecordedEmbedding(EmbeddingOps& next, Recording& log) : to(next), record(log) {}
    EmbeddingOps& to;
    Recording& record;

    void forward(Stream& stream, TensorView x, TensorView tokens, TensorView table, TensorView positions,
                 std::int64_t length, std::int64_t first_row) override {
        record(stream, "embedding.forward", 0.0,
               [=, this, &stream] { to.forward(stream, x, tokens, table, positions, length, first_row); });
    }
    void backward(Stream& stream, TensorView dtable, TensorView dpositions, TensorView dx, TensorView tokens,
                  std::int64_t length, std::int64_t first_row, Into table_into, Into positions_into,
                  TensorView scratch) override {
        record(stream, "embedding.backward", 0.0, [=, this, &stream] {
            to.backward(stream, dtable, dpositions, dx, tokens, length, first_row, table_into, positions_into,
                        scratch);
        });
    }
    [[nodiscard]] std::size_t backward_scratch_bytes(std::int64_t m, std::int64_t rows) const override {
        return to.backward_scratch_bytes(m, rows);
    }
};

struct RecordedLoss final : LossOps {
    RecordedLoss(LossOps& next, Recording& log) : to(next), record(log) {}
    LossOps& to;
    Recording& record;

    void cross_entropy(Stream& stream, TensorView losses, TensorView logits, TensorView targets,
                       LossSettings settings) override {
        record(stream, "cross_entropy", 0.0,
               [=, this, &stream] { to.cross_entropy(stream, losses, logits, targets, settings); });
    }
    void row_maxima(Stream& stream, TensorView maxima, TensorView logits, LossSettings settings) override {
        record(stream, "row_maxima", 0.0,
               [=, this, &stream] { to.row_maxima(stream, maxima, logits, settings); });
    }
    void exponential_sums(Stream& stream, TensorView sums, TensorView logits, TensorView maxima,
                          TensorView targets, LossSettings settings) override {
        record(stream, "exponential_sums", 0.0,
               [=, this, &stream] { to.exponential_sums(stream, sums, logits, maxima, targets, settings); });
    }
    void finish_cross_entropy(Stream& stream, TensorView losses, TensorView logits, TensorView maxima,
                              TensorView sums, TensorView targets, LossSettings settings) override {
        record(stream, "finish_cross_entropy", 0.0, [=, this, &stream] {
            to.finish_cross_entropy(stream, losses, logits, maxima, sums, targets, settings);
        });
    }
    void sum_losses(Stream& stream, TensorView total, TensorView losses, Into into) override {
        record(stream, "sum_losses", 0.0, [=, this, &stream] { to.sum_losses(stream, total, losses, into); });
    }
};

struct RecordedOptimizer final : OptimizerOps {
    RecordedOptimizer(OptimizerOps& next, Recording& log) : to(next), record(log) {}
    OptimizerOps& to;
    Recording& record;

    void sum_squares(Stream& stream, TensorView bins, TensorView gradient, Into into) override {
        record(stream, "sum_squares", 0.0,
               [=, this, &stream] { to.sum_squares(stream, bins, gradient, into); });
    }
    void finish_norm(Stream& stream, TensorView scalars, TensorView bins, double max_norm,
                     double inverse_loss_scale) override {
        record(stream, "finish_norm", 0.0,
               [=, this, &stream] { to.finish_norm(stream, scalars, bins, max_norm, inverse_loss_scale); });
    }
    void adamw(Stream& stream, TensorView weights, TensorView master, TensorView m, TensorView v,
               TensorView gradient, TensorView flags, TensorView scalars, AdamwSettings settings) override {
        record(stream, "adamw", 0.0, [=, this, &stream] {
            to.adamw(stream, weights, master, m, v, gradient, flags, scalars, settings);
        });
    }
};

}  // namespace

class OpRecorder::Families {
  public:
    Families(Ops target, Clock& clock)
        : recording(clock),
          matmul(target.matmul, recording),
          norm(target.norm, recording),
          attention(target.attention, recording),
          elementwise(target.elementwise, recording),
          embedding(target.embedding, recording),
          loss(target.loss, recording),
          optimizer(target.optimizer, recording) {}

    Recording recording;
    RecordedMatmul matmul;
    RecordedNorm norm;
    RecordedAttention attention;
    RecordedElementwise elementwise;
    RecordedEmbedding embedding;
    RecordedLoss loss;
    RecordedOptimizer optimizer;
};

OpRecorder::OpRecorder(Ops target, Clock& clock) : families_(std::make_unique<Families>(target, clock)) {}
OpRecorder::~OpRecorder() = default;

Ops OpRecorder::ops() {
    Families& f = *families_;
    return {f.matmul, f.norm, f.attention, f.elementwise, f.embedding, f.loss, f.optimizer};
}

void OpRecorder::start() { families_->recording.start(); }
std::vector<OpCall> OpRecorder::stop() { return families_->recording.stop(); }

std::vector<OpCall> products_of(const std::vector<OpCall>& calls) {
    std::vector<OpCall> products;
    std::copy_if(calls.begin(), calls.end(), std::back_inserter(products),
                 [](const OpCall& call) { return call.flops > 0.0; });
    return products;
}

std::vector<OpTotal> totals_by_name(const std::vector<OpCall>& calls) {
    std::vector<OpTotal> totals;
    for (const OpCall& call : calls) {
        auto total = std::find_if(totals.begin(), totals.end(),
                                  [&](const OpTotal& known) { return known.name == call.name; });
        if (total == totals.end()) total = totals.insert(total, {call.name, 0, 0.0, 0.0});
        ++total->calls;
        total->seconds += call.seconds;
        total->flops += call.flops;
    }
    std::stable_sort(totals.begin(), totals.end(),
                     [](const OpTotal& a, const OpTotal& b) { return a.seconds > b.seconds; });
    return totals;
}

}  // namespace trainctl
