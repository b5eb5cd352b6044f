// Ops on the sim device: every call is checked as any backend checks it, then counted. FLOPs: 2 M N K per
// matrix product; attention over the T (T + 1) / 2 pairs that a causal mask leaves, 4 head_dim per pair
// forward and twice that backward (scores made again in backward are not counted); everything else is memory
// traffic. Bytes: each operand once, read-modify-write twice.
#include <initializer_list>

#include "trainctl/ops/backends.h"
#include "trainctl/ops/contract.h"

namespace trainctl {
namespace {

class Counter {
  public:
    explicit Counter(SimDevice& device) : device_(device) {}
    void work(Stream& stream, double flops, std::initializer_list<TensorView> moved) const {
        double bytes = 0.0;
        for (const TensorView& tensor : moved) {
            if (!tensor.empty()) bytes += static_cast<double>(tensor.bytes());
        }
        device_.work(stream, flops, bytes);
    }

  private:
    SimDevice& device_;
};

// A tensor that is read only to be added to.
TensorView read_if(Into into, const TensorView& tensor) {
    return into == Into::Accumulate ? tensor : TensorView{};
}

double product_flops(const contract::MatmulSizes& sizes) {
    return 2.0 * static_cast<double>(sizes.m) * static_cast<double>(sizes.n) * static_cast<double>(sizes.k);
}

double attention_flops(const AttentionSettings& s) {
    const auto length = static_cast<double>(s.length);
    const double pairs = static_cast<double>(s.batch * s.heads) * length * (length + 1.0) / 2.0;
    return 4.0 * static_cast<double>(s.head_dim) * pairs;
}

// The rows of a table that M tokens touch, as a tensor to count.
TensorView gathered(const TensorView& table, const contract::RowSizes& sizes) {
    return {table.data, Shape{sizes.rows, sizes.columns}, table.dtype};
}

class SimMatmul final : public MatmulOps {
  public:
    SimMatmul(Counter counter, MatmulOps& planned, std::set<Product>* products)
        : counter_(counter), planned_(planned), products_(products) {}
    void forward(Stream& stream, TensorView y, TensorView x, TensorView w, TensorView bias,
                 TensorView scratch) override {
        const auto sizes = contract::matmul_forward(y, x, w, bias);
        check("matmul.forward", MatmulKind::Forward, sizes, x.dtype, scratch);
        note(MatmulKind::Forward, sizes, x.dtype, y.dtype, !bias.empty());
        counter_.work(stream, product_flops(sizes), {y, x, w, bias});
    }
    void backward_input(Stream& stream, TensorView dx, TensorView dy, TensorView w, Into into,
                        TensorView scratch) override {
        const auto sizes = contract::matmul_backward_input(dx, dy, w);
        check("matmul.backward_input", MatmulKind::BackwardInput, sizes, dy.dtype, scratch);
        note(MatmulKind::BackwardInput, sizes, dy.dtype, dx.dtype, false);
        counter_.work(stream, product_flops(sizes), {dx, read_if(into, dx), dy, w});
    }
    void backward_weight(Stream& stream, TensorView dw, TensorView dy, TensorView x, Into into,
                         TensorView scratch) override {
        const auto sizes = contract::matmul_backward_weight(dw, dy, x);
        check("matmul.backward_weight", MatmulKind::BackwardWeight, sizes, dy.dtype, scratch);
        note(MatmulKind::BackwardWeight, sizes, dy.dtype, dw.dtype, false);
        counter_.work(stream, product_flops(sizes), {dw, read_if(into, dw), dy, x});
    }
    [[nodiscard]] std::size_t scratch_bytes(MatmulKind kind, std::int64_t m, std::int64_t n, std::int64_t k,
                                            DType dtype) const override {
        return planned_.scratch_bytes(kind, m, n, k, dtype);
    }

  private:
    void check(const char* op, MatmulKind kind, const contract::MatmulSizes& sizes, DType dtype,
               const TensorView& scratch) const {
        contract::scratch(op, scratch, scratch_bytes(kind, sizes.m, sizes.n, sizes.k, dtype));
    }
    void note(MatmulKind kind, const contract::MatmulSizes& sizes, DType operands, DType result,
              bool bias) const {
        if (products_ == nullptr || sizes.m == 0) return;
        products_->insert({kind, sizes.m, sizes.n, sizes.k, operands, result, bias});
    }

    Counter counter_;
    MatmulOps& planned_;
    std::set<Product>* products_;
};

class SimNorm final : public NormOps {
  public:
    SimNorm(Counter counter, NormOps& planned) : counter_(counter), planned_(planned) {}
    void forward(Stream& stream, TensorView y, TensorView residual_out, TensorView statistics,
                 TensorView residual_in, TensorView branch, TensorView gain, TensorView bias,
                 NormSettings /*settings*/) override {
        contract::norm_forward(y, residual_out, statistics, residual_in, branch, gain, bias);
        counter_.work(
            stream, 0.0,
            {y, branch.empty() ? TensorView{} : residual_out, statistics, residual_in, branch, gain, bias});
    }
    void backward(Stream& stream, TensorView dresidual_in, TensorView dgain, TensorView dbias, TensorView dy,
                  TensorView dresidual_out, TensorView residual, TensorView statistics, TensorView gain,
                  Into into, NormSettings /*settings*/, TensorView scratch) override {
        const auto sizes = contract::norm_backward(dresidual_in, dgain, dbias, dy, dresidual_out, residual,
                                                   statistics, gain);
        contract::scratch("norm.backward", scratch,
                          backward_scratch_bytes(sizes.rows, sizes.columns, dy.dtype));
        counter_.work(stream, 0.0,
                      {dresidual_in, dgain, read_if(into, dgain), dbias, read_if(into, dbias), dy,
                       dresidual_out, residual, statistics, gain});
    }
    [[nodiscard]] std::size_t backward_scratch_bytes(std::int64_t m, std::int64_t c,
                                                     DType dtype) const override {
        return planned_.backward_scratch_bytes(m, c, dtype);
    }

  private:
    Counter counter_;
    NormOps& planned_;
};

class SimAttention final : public AttentionOps {
  public:
    SimAttention(Counter counter, AttentionOps& planned) : counter_(counter), planned_(planned) {}
    void forward(Stream& stream, TensorView out, TensorView lse, TensorView qkv, AttentionSettings settings,
                 TensorView scratch) override {
        contract::attention_forward(out, lse, qkv, settings);
        contract::scratch("attention.forward", scratch, forward_scratch_bytes(settings, qkv.dtype));
        counter_.work(stream, attention_flops(settings), {out, lse, qkv});
    }
    void backward(Stream& stream, TensorView dqkv, TensorView dout, TensorView out, TensorView lse,
                  TensorView qkv, AttentionSettings settings, TensorView scratch) override {
        contract::attention_backward(dqkv, dout, out, lse, qkv, settings);
        contract::scratch("attention.backward", scratch, backward_scratch_bytes(settings, qkv.dtype));
        counter_.work(stream, 2.0 * attention_flops(settings), {dqkv, dout, out, lse, qkv});
    }
    [[nodiscard]] std::size_t forward_scratch_bytes(AttentionSettings settings, DType dtype) const override {
        return planned_.forward_scratch_bytes(settings, dtype);
    }
    [[nodiscard]] std::size_t backward_scratch_bytes(AttentionSettings settings, DType dtype) const override {
        return planned_.backward_scratch_bytes(settings, dtype);
    }
    void rope(Stream& stream, TensorView qkv, TensorView table, AttentionSettings settings,
              RopeDirection /*direction*/) override {
        contract::rope(qkv, table, settings);
        const TensorView rotated{
            qkv.data,
            Shape{settings.batch * settings.length, (settings.heads + settings.kv_heads) * settings.head_dim},
            qkv.dtype};
        counter_.work(stream, 0.0, {rotated, rotated, table});
    }

  private:
    Counter counter_;
    AttentionOps& planned_;
};

class SimElementwise final : public ElementwiseOps {
  public:
    SimElementwise(Counter counter, ElementwiseOps& planned) : counter_(counter), planned_(planned) {}
    void bias_gelu_forward(Stream& stream, TensorView y, TensorView x, TensorView bias) override {
        contract::bias_gelu_forward(y, x, bias);
        counter_.work(stream, 0.0, {y, x, bias});
    }
    void bias_gelu_backward(Stream& stream, TensorView dx, TensorView dbias, TensorView dy, TensorView x,
                            TensorView bias, Into into, TensorView scratch) override {
        const auto sizes = contract::bias_gelu_backward(dx, dbias, dy, x, bias);
        contract::scratch("bias_gelu_backward", scratch, column_sum_scratch_bytes(sizes.rows, sizes.columns));
        counter_.work(stream, 0.0, {dx, dbias, read_if(into, dbias), dy, x, bias});
    }
    void swiglu_forward(Stream& stream, TensorView y, TensorView gate_up) override {
        contract::swiglu_forward(y, gate_up);
        counter_.work(stream, 0.0, {y, gate_up});
    }
    void swiglu_backward(Stream& stream, TensorView dgate_up, TensorView dy, TensorView gate_up) override {
        contract::swiglu_backward(dgate_up, dy, gate_up);
        counter_.work(stream, 0.0, {dgate_up, dy, gate_up});
    }
    void bias_backward(Stream& stream, TensorView dbias, TensorView dy, Into into,
                       TensorView scratch) override {
        const auto sizes = contract::bias_backward(dbias, dy);
        contract::scratch("bias_backward", scratch, column_sum_scratch_bytes(sizes.rows, sizes.columns));
        counter_.work(stream, 0.0, {dbias, read_if(into, dbias), dy});
    }
    [[nodiscard]] std::size_t column_sum_scratch_bytes(std::int64_t m, std::int64_t n) const override {
        return planned_.column_sum_scratch_bytes(m, n);
    }
    void add(Stream& stream, TensorView y, TensorView a, TensorView b) override {
        contract::add(y, a, b);
        counter_.work(stream, 0.0, {y, a, b});
    }
    void dropout(Stream& stream, TensorView y, TensorView x, std::int64_t rows_per_sample,
                 Dropout site) override {
        contract::dropout(y, x, rows_per_sample, site);
        counter_.work(stream, 0.0, {y, x});
    }
    void cast(Stream& stream, TensorView to, TensorView from) override {
        contract::cast(to, from);
        counter_.work(stream, 0.0, {to, from});
    }
    void fill_zero(Stream& stream, TensorView x) override { counter_.work(stream, 0.0, {x}); }

  private:
    Counter counter_;
    ElementwiseOps& planned_;
};

class SimEmbedding final : public EmbeddingOps {
  public:
    SimEmbedding(Counter counter, EmbeddingOps& planned) : counter_(counter), planned_(planned) {}
    void forward(Stream& stream, TensorView x, TensorView tokens, TensorView table, TensorView positions,
                 std::int64_t length, std::int64_t /*first_row*/) override {
        const auto sizes = contract::embedding_forward(x, tokens, table, positions, length);
        counter_.work(
            stream, 0.0,
            {x, tokens, gathered(table, sizes), positions.empty() ? positions : gathered(positions, sizes)});
    }
    void backward(Stream& stream, TensorView dtable, TensorView dpositions, TensorView dx, TensorView tokens,
                  std::int64_t length, std::int64_t /*first_row*/, Into table_into, Into positions_into,
                  TensorView scratch) override {
        const auto sizes = contract::embedding_backward(dtable, dpositions, dx, tokens, length);
        contract::scratch("embedding.backward", scratch,
                          backward_scratch_bytes(sizes.rows, dtable.elements() / sizes.columns));
        const TensorView touched = table_into == Into::Accumulate ? gathered(dtable, sizes) : dtable;
        counter_.work(stream, 0.0,
                      {touched, read_if(table_into, touched), dpositions, read_if(positions_into, dpositions),
                       dx, tokens});
    }
    [[nodiscard]] std::size_t backward_scratch_bytes(std::int64_t m, std::int64_t rows) const override {
        return planned_.backward_scratch_bytes(m, rows);
    }

  private:
    Counter counter_;
    EmbeddingOps& planned_;
};

class SimLoss final : public LossOps {
  public:
    explicit SimLoss(Counter counter) : counter_(counter) {}
    void cross_entropy(Stream& stream, TensorView losses, TensorView logits, TensorView targets,
                       LossSettings settings) override {
        contract::cross_entropy(losses, logits, targets, settings);
        const TensorView written = settings.pass == LossPass::Train ? logits : TensorView{};
        counter_.work(stream, 0.0, {losses, logits, written, targets});
    }
    void row_maxima(Stream& stream, TensorView maxima, TensorView logits, LossSettings settings) override {
        contract::row_maxima(maxima, logits, settings);
        counter_.work(stream, 0.0, {maxima, logits});
    }
    void exponential_sums(Stream& stream, TensorView sums, TensorView logits, TensorView maxima,
                          TensorView targets, LossSettings settings) override {
        contract::exponential_sums(sums, logits, maxima, targets, settings);
        counter_.work(stream, 0.0, {sums, logits, maxima, targets});
    }
    void finish_cross_entropy(Stream& stream, TensorView losses, TensorView logits, TensorView maxima,
                              TensorView sums, TensorView targets, LossSettings settings) override {
        contract::finish_cross_entropy(losses, logits, maxima, sums, targets, settings);
        const TensorView changed = settings.pass == LossPass::Train ? logits : TensorView{};
        counter_.work(stream, 0.0, {losses, changed, changed, maxima, sums, targets});
    }
    void sum_losses(Stream& stream, TensorView total, TensorView losses, Into into) override {
        contract::sum_losses(total, losses);
        counter_.work(stream, 0.0, {total, read_if(into, total), losses});
    }

  private:
    Counter counter_;
};

class SimOptimizer final : public OptimizerOps {
  public:
    explicit SimOptimizer(Counter counter) : counter_(counter) {}
    void sum_squares(Stream& stream, TensorView bins, TensorView gradient, Into into) override {
        contract::sum_squares(bins, gradient);
        counter_.work(stream, 0.0, {bins, read_if(into, bins), gradient});
    }
    void finish_norm(Stream& stream, TensorView scalars, TensorView bins, double /*max_norm*/,
                     double /*inverse_loss_scale*/) override {
        contract::finish_norm(scalars, bins);
        counter_.work(stream, 0.0, {scalars, bins});
    }
    void adamw(Stream& stream, TensorView weights, TensorView master, TensorView m, TensorView v,
               TensorView gradient, TensorView flags, TensorView scalars,
               AdamwSettings /*settings*/) override {
        contract::adamw(weights, master, m, v, gradient, flags, scalars);
        counter_.work(stream, 0.0, {weights, master, master, m, m, v, v, gradient, flags, scalars});
    }

  private:
    Counter counter_;
};

class SimBackend final : public OpsBackend {
  public:
    SimBackend(SimDevice& device, Ops planned, std::set<Product>* products)
        : matmul_(Counter(device), planned.matmul, products),
          norm_(Counter(device), planned.norm),
          attention_(Counter(device), planned.attention),
          elementwise_(Counter(device), planned.elementwise),
          embedding_(Counter(device), planned.embedding),
          loss_(Counter(device)),
          optimizer_(Counter(device)) {}

    Ops ops() override { return {matmul_, norm_, attention_, elementwise_, embedding_, loss_, optimizer_}; }

  private:
    SimMatmul matmul_;
    SimNorm norm_;
    SimAttention attention_;
    SimElementwise elementwise_;
    SimEmbedding embedding_;
    SimLoss loss_;
    SimOptimizer optimizer_;
};

}  // namespace

std::unique_ptr<OpsBackend> make_sim_ops(SimDevice& device, Ops planned, std::set<Product>* products) {
    return std::make_unique<SimBackend>(device, planned, products);
}

}  // namespace trainctl
