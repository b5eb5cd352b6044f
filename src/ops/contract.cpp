#include "trainctl/ops/contract.h"

#include <fmt/format.h>

#include <string>

namespace trainctl::contract {
namespace {

// One op's view of its tensors, so that every message names the op.
class Check {
  public:
    explicit Check(const char* op) : op_(op) {}

    void that(bool holds, const std::string& what) const {
        if (!holds) fail(Exit::Internal, fmt::format("{}: {}; correct the caller", op_, what));
    }
    void present(const char* name, const TensorView& tensor) const {
        that(!tensor.empty(), fmt::format("{} is missing", name));
    }
    void shape(const char* name, const TensorView& tensor, std::int64_t elements, const char* meaning) const {
        present(name, tensor);
        that(tensor.elements() == elements, fmt::format("{} must have {} = {} elements, has shape {}", name,
                                                        meaning, elements, to_string(tensor.shape)));
    }
    void dtype(const char* name, const TensorView& tensor, DType wanted) const {
        that(tensor.dtype == wanted,
             fmt::format("{} must be {}, is {}", name, dtype_name(wanted), dtype_name(tensor.dtype)));
    }
    void tensor(const char* name, const TensorView& tensor, std::int64_t elements, const char* meaning,
                DType wanted) const {
        shape(name, tensor, elements, meaning);
        dtype(name, tensor, wanted);
    }
    // Absent, or as `tensor`.
    void optional(const char* name, const TensorView& view, std::int64_t elements, const char* meaning,
                  DType wanted) const {
        if (!view.empty()) tensor(name, view, elements, meaning, wanted);
    }
    [[nodiscard]] RowSizes rows(const char* name, const TensorView& tensor) const {
        present(name, tensor);
        that(tensor.shape.rank() >= 1, fmt::format("{} must have a last dimension", name));
        const std::int64_t columns = tensor.shape[tensor.shape.rank() - 1];
        that(columns > 0,
             fmt::format("{} has shape {}: its last dimension must not be 0", name, to_string(tensor.shape)));
        return {tensor.elements() / columns, columns};
    }
    void compute(const char* name, const TensorView& tensor) const {
        const DType found = tensor.dtype;
        that(found == DType::BF16 || found == DType::F16 || found == DType::F32 || found == DType::F64,
             fmt::format("{} must have a floating dtype, is {}", name, dtype_name(found)));
    }

  private:
    const char* op_;
};

// Statistics, losses and parameter gradients.
DType wide(DType compute) { return compute == DType::F64 ? DType::F64 : DType::F32; }

void check_attention(const Check& check, const AttentionSettings& s) {
    check.that(s.batch >= 0 && s.length >= 0 && s.heads > 0 && s.kv_heads > 0 && s.head_dim > 0,
               "batch, length, heads, kv_heads and head_dim must be set");
    check.that(s.heads % s.kv_heads == 0,
               fmt::format("kv_heads {} must divide heads {}", s.kv_heads, s.heads));
    check.that(s.dropout.probability >= 0.0F && s.dropout.probability < 1.0F,
               "the dropout probability must lie in [0, 1)");
    check.that(s.first_head >= 0, fmt::format("first_head {} must not be negative", s.first_head));
}

std::int64_t qkv_elements(const AttentionSettings& s) {
    return s.batch * s.length * (s.heads + 2 * s.kv_heads) * s.head_dim;
}
std::int64_t out_elements(const AttentionSettings& s) { return s.batch * s.length * s.heads * s.head_dim; }

}  // namespace

MatmulSizes matmul_forward(const TensorView& y, const TensorView& x, const TensorView& w,
                           const TensorView& bias) {
    const Check check("matmul.forward");
    const RowSizes in = check.rows("x", x);
    const RowSizes weight = check.rows("w", w);
    check.compute("x", x);
    check.tensor("w", w, weight.rows * in.columns, "N x K", x.dtype);
    check.shape("y", y, in.rows * weight.rows, "M x N");
    check.that(y.dtype == x.dtype || y.dtype == wide(x.dtype), "y must have x's dtype or be wide");
    check.optional("bias", bias, weight.rows, "N", x.dtype);
    return {in.rows, weight.rows, in.columns};
}

MatmulSizes matmul_backward_input(const TensorView& dx, const TensorView& dy, const TensorView& w) {
    const Check check("matmul.backward_input");
    const RowSizes out = check.rows("dy", dy);
    const RowSizes weight = check.rows("w", w);
    check.compute("dy", dy);
    check.tensor("w", w, out.columns * weight.columns, "N x K", dy.dtype);
    check.tensor("dx", dx, out.rows * weight.columns, "M x K", dy.dtype);
    return {out.rows, out.columns, weight.columns};
}

MatmulSizes matmul_backward_weight(const TensorView& dw, const TensorView& dy, const TensorView& x) {
    const Check check("matmul.backward_weight");
    const RowSizes out = check.rows("dy", dy);
    const RowSizes in = check.rows("x", x);
    check.compute("dy", dy);
    check.that(out.rows == in.rows, fmt::format("dy has {} rows, x has {}", out.rows, in.rows));
    check.dtype("x", x, dy.dtype);
    check.tensor("dw", dw, out.columns * in.columns, "N x K", wide(dy.dtype));
    return {out.rows, out.columns, in.columns};
}

RowSizes norm_forward(const TensorView& y, const TensorView& residual_out, const TensorView& statistics,
                      const TensorView& residual_in, const TensorView& branch, const TensorView& gain,
                      const TensorView& bias) {
    const Check check("norm.forward");
    const RowSizes sizes = check.rows("residual_in", residual_in);
    const std::int64_t elements = sizes.rows * sizes.columns;
    const DType dtype = residual_in.dtype;
    check.compute("residual_in", residual_in);
    check.tensor("y", y, elements, "M x C", dtype);
    check.optional("branch", branch, elements, "M x C", dtype);
    if (!branch.empty()) check.tensor("residual_out", residual_out, elements, "M x C", dtype);
    check.tensor("statistics", statistics, sizes.rows * 2, "M x 2", wide(dtype));
    check.tensor("gain", gain, sizes.columns, "C", dtype);
    check.optional("bias", bias, sizes.columns, "C", dtype);
    return sizes;
}

RowSizes norm_backward(const TensorView& dresidual_in, const TensorView& dgain, const TensorView& dbias,
                       const TensorView& dy, const TensorView& dresidual_out, const TensorView& residual,
                       const TensorView& statistics, const TensorView& gain) {
    const Check check("norm.backward");
    const RowSizes sizes = check.rows("residual", residual);
    const std::int64_t elements = sizes.rows * sizes.columns;
    const DType dtype = residual.dtype;
    check.compute("residual", residual);
    check.tensor("dresidual_in", dresidual_in, elements, "M x C", dtype);
    check.tensor("dy", dy, elements, "M x C", dtype);
    check.optional("dresidual_out", dresidual_out, elements, "M x C", dtype);
    check.tensor("statistics", statistics, sizes.rows * 2, "M x 2", wide(dtype));
    check.tensor("gain", gain, sizes.columns, "C", dtype);
    check.tensor("dgain", dgain, sizes.columns, "C", wide(dtype));
    check.optional("dbias", dbias, sizes.columns, "C", wide(dtype));
    return sizes;
}

void attention_forward(const TensorView& out, const TensorView& lse, const TensorView& qkv,
                       const AttentionSettings& settings) {
    const Check check("attention.forward");
    check_attention(check, settings);
    check.compute("qkv", qkv);
    check.shape("qkv", qkv, qkv_elements(settings), "batch x length x (heads + 2 kv_heads) x head_dim");
    check.tensor("out", out, out_elements(settings), "batch x length x heads x head_dim", qkv.dtype);
    check.tensor("lse", lse, settings.batch * settings.heads * settings.length, "batch x heads x length",
                 wide(qkv.dtype));
}

void attention_backward(const TensorView& dqkv, const TensorView& dout, const TensorView& out,
                        const TensorView& lse, const TensorView& qkv, const AttentionSettings& settings) {
    const Check check("attention.backward");
    check_attention(check, settings);
    check.compute("qkv", qkv);
    const char* packed = "batch x length x (heads + 2 kv_heads) x head_dim";
    check.shape("qkv", qkv, qkv_elements(settings), packed);
    check.tensor("dqkv", dqkv, qkv_elements(settings), packed, qkv.dtype);
    check.tensor("dout", dout, out_elements(settings), "batch x length x heads x head_dim", qkv.dtype);
    check.tensor("out", out, out_elements(settings), "batch x length x heads x head_dim", qkv.dtype);
    check.tensor("lse", lse, settings.batch * settings.heads * settings.length, "batch x heads x length",
                 wide(qkv.dtype));
}

void rope(const TensorView& qkv, const TensorView& table, const AttentionSettings& settings) {
    const Check check("attention.rope");
    check_attention(check, settings);
    check.compute("qkv", qkv);
    check.that(settings.head_dim % 2 == 0, fmt::format("head_dim {} must be even", settings.head_dim));
    check.shape("qkv", qkv, qkv_elements(settings), "batch x length x (heads + 2 kv_heads) x head_dim");
    check.present("table", table);
    check.dtype("table", table, wide(qkv.dtype));
    check.that(table.elements() >= settings.length * settings.head_dim,
               fmt::format("table must hold length x head_dim = {} elements, has shape {}",
                           settings.length * settings.head_dim, to_string(table.shape)));
}

RowSizes bias_gelu_forward(const TensorView& y, const TensorView& x, const TensorView& bias) {
    const Check check("bias_gelu_forward");
    const RowSizes sizes = check.rows("x", x);
    check.compute("x", x);
    check.tensor("y", y, x.elements(), "M x N", x.dtype);
    check.tensor("bias", bias, sizes.columns, "N", x.dtype);
    return sizes;
}

RowSizes bias_gelu_backward(const TensorView& dx, const TensorView& dbias, const TensorView& dy,
                            const TensorView& x, const TensorView& bias) {
    const Check check("bias_gelu_backward");
    const RowSizes sizes = check.rows("x", x);
    check.compute("x", x);
    check.tensor("dx", dx, x.elements(), "M x N", x.dtype);
    check.tensor("dy", dy, x.elements(), "M x N", x.dtype);
    check.tensor("bias", bias, sizes.columns, "N", x.dtype);
    check.tensor("dbias", dbias, sizes.columns, "N", wide(x.dtype));
    return sizes;
}

RowSizes swiglu_forward(const TensorView& y, const TensorView& gate_up) {
    const Check check("swiglu_forward");
    const RowSizes sizes = check.rows("y", y);
    check.compute("y", y);
    check.tensor("gate_up", gate_up, sizes.rows * sizes.columns * 2, "M x 2F", y.dtype);
    return sizes;
}

RowSizes swiglu_backward(const TensorView& dgate_up, const TensorView& dy, const TensorView& gate_up) {
    const Check check("swiglu_backward");
    const RowSizes sizes = check.rows("dy", dy);
    check.compute("dy", dy);
    check.tensor("gate_up", gate_up, sizes.rows * sizes.columns * 2, "M x 2F", dy.dtype);
    check.tensor("dgate_up", dgate_up, sizes.rows * sizes.columns * 2, "M x 2F", dy.dtype);
    return sizes;
}

RowSizes bias_backward(const TensorView& dbias, const TensorView& dy) {
    const Check check("bias_backward");
    const RowSizes sizes = check.rows("dy", dy);
    check.compute("dy", dy);
    check.tensor("dbias", dbias, sizes.columns, "N", wide(dy.dtype));
    return sizes;
}

void add(const TensorView& y, const TensorView& a, const TensorView& b) {
    const Check check("add");
    check.compute("a", a);
    check.tensor("y", y, a.elements(), "the elements of a", a.dtype);
    check.tensor("b", b, a.elements(), "the elements of a", a.dtype);
}

RowSizes dropout(const TensorView& y, const TensorView& x, std::int64_t rows_per_sample,
                 const Dropout& site) {
    const Check check("dropout");
    const RowSizes sizes = check.rows("x", x);
    check.compute("x", x);
    check.tensor("y", y, x.elements(), "the elements of x", x.dtype);
    check.that(rows_per_sample > 0 && site.first_row >= 0,
               fmt::format("rows_per_sample {} must be positive and first_row {} not negative",
                           rows_per_sample, site.first_row));
    check.that(site.probability >= 0.0F && site.probability < 1.0F, "the probability must lie in [0, 1)");
    return sizes;
}

void cast(const TensorView& to, const TensorView& from) {
    const Check check("cast");
    check.present("from", from);
    check.compute("from", from);
    check.compute("to", to);
    check.shape("to", to, from.elements(), "the elements of from");
}

RowSizes embedding_forward(const TensorView& x, const TensorView& tokens, const TensorView& table,
                           const TensorView& positions, std::int64_t length) {
    const Check check("embedding.forward");
    const RowSizes sizes = check.rows("x", x);
    check.compute("x", x);
    check.that(length > 0, "length must be set");
    check.tensor("tokens", tokens, sizes.rows, "M", DType::I32);
    check.tensor("table", table, check.rows("table", table).rows * sizes.columns, "rows x C", x.dtype);
    if (!positions.empty()) {
        check.dtype("positions", positions, x.dtype);
        check.that(positions.elements() >= length * sizes.columns,
                   "positions must have at least T rows of C");
    }
    return sizes;
}

RowSizes embedding_backward(const TensorView& dtable, const TensorView& dpositions, const TensorView& dx,
                            const TensorView& tokens, std::int64_t length) {
    const Check check("embedding.backward");
    const RowSizes sizes = check.rows("dx", dx);
    check.compute("dx", dx);
    check.that(length > 0, "length must be set");
    check.tensor("tokens", tokens, sizes.rows, "M", DType::I32);
    check.tensor("dtable", dtable, check.rows("dtable", dtable).rows * sizes.columns, "rows x C",
                 wide(dx.dtype));
    if (!dpositions.empty()) {
        check.dtype("dpositions", dpositions, wide(dx.dtype));
        check.that(dpositions.elements() >= length * sizes.columns,
                   "dpositions must have at least T rows of C");
    }
    return sizes;
}

RowSizes cross_entropy(const TensorView& losses, const TensorView& logits, const TensorView& targets,
                       const LossSettings& settings) {
    const Check check("cross_entropy");
    const RowSizes sizes = check.rows("logits", logits);
    check.compute("logits", logits);
    check.tensor("losses", losses, sizes.rows, "M", wide(logits.dtype));
    check.tensor("targets", targets, sizes.rows, "M", DType::I32);
    check.that(settings.vocab_size > 0 && settings.vocab_size <= sizes.columns,
               fmt::format("vocab_size {} must lie in 1..{}", settings.vocab_size, sizes.columns));
    check.that(settings.first_column == 0, "all columns must be at hand, from first_column 0 on");
    return sizes;
}

namespace {

RowSizes vocabulary_part(const Check& check, const TensorView& logits, const LossSettings& settings) {
    const RowSizes sizes = check.rows("logits", logits);
    check.compute("logits", logits);
    check.that(settings.vocab_size > 0 && settings.first_column >= 0,
               fmt::format("vocab_size {} must be positive and first_column {} not negative",
                           settings.vocab_size, settings.first_column));
    return sizes;
}

}  // namespace

RowSizes row_maxima(const TensorView& maxima, const TensorView& logits, const LossSettings& settings) {
    const Check check("row_maxima");
    const RowSizes sizes = vocabulary_part(check, logits, settings);
    check.tensor("maxima", maxima, sizes.rows, "M", wide(logits.dtype));
    return sizes;
}

RowSizes exponential_sums(const TensorView& sums, const TensorView& logits, const TensorView& maxima,
                          const TensorView& targets, const LossSettings& settings) {
    const Check check("exponential_sums");
    const RowSizes sizes = vocabulary_part(check, logits, settings);
    check.tensor("sums", sums, 2 * sizes.rows, "M x 2", wide(logits.dtype));
    check.tensor("maxima", maxima, sizes.rows, "M", wide(logits.dtype));
    check.tensor("targets", targets, sizes.rows, "M", DType::I32);
    return sizes;
}

RowSizes finish_cross_entropy(const TensorView& losses, const TensorView& logits, const TensorView& maxima,
                              const TensorView& sums, const TensorView& targets,
                              const LossSettings& settings) {
    const Check check("finish_cross_entropy");
    const RowSizes sizes = vocabulary_part(check, logits, settings);
    check.tensor("losses", losses, sizes.rows, "M", wide(logits.dtype));
    check.tensor("maxima", maxima, sizes.rows, "M", wide(logits.dtype));
    check.tensor("sums", sums, 2 * sizes.rows, "M x 2", wide(logits.dtype));
    check.tensor("targets", targets, sizes.rows, "M", DType::I32);
    return sizes;
}

void sum_losses(const TensorView& total, const TensorView& losses) {
    const Check check("sum_losses");
    check.tensor("total", total, 1, "1", DType::F64);
    check.present("losses", losses);
    check.that(losses.dtype == DType::F32 || losses.dtype == DType::F64, "losses must be f32 (or f64)");
}

void sum_squares(const TensorView& bins, const TensorView& gradient) {
    const Check check("sum_squares");
    check.tensor("bins", bins, norm_bins, "norm_bins", DType::I64);
    check.present("gradient", gradient);
    check.that(gradient.dtype == DType::F32 || gradient.dtype == DType::F64, "gradient must be f32 (or f64)");
}

void finish_norm(const TensorView& scalars, const TensorView& bins) {
    const Check check("finish_norm");
    check.tensor("scalars", scalars, step_scalars, "step_scalars", DType::F64);
    check.tensor("bins", bins, norm_bins, "norm_bins", DType::I64);
}

void adamw(const TensorView& weights, const TensorView& master, const TensorView& m, const TensorView& v,
           const TensorView& gradient, const TensorView& flags, const TensorView& scalars) {
    const Check check("adamw");
    check.present("master", master);
    check.that(master.dtype == DType::F32 || master.dtype == DType::F64, "master must be f32 (or f64)");
    const std::int64_t elements = master.elements();
    check.tensor("m", m, elements, "the elements of master", master.dtype);
    check.tensor("v", v, elements, "the elements of master", master.dtype);
    check.tensor("gradient", gradient, elements, "the elements of master", master.dtype);
    check.tensor("flags", flags, (elements + norm_block - 1) / norm_block, "one per block", DType::U8);
    check.tensor("scalars", scalars, step_scalars, "step_scalars", DType::F64);
    if (!weights.empty()) {
        check.compute("weights", weights);
        check.shape("weights", weights, elements, "the elements of master");
    }
}

void scratch(const char* op, const TensorView& scratch, std::size_t needed) {
    if (needed == 0) return;
    const std::size_t found = scratch.empty() ? 0 : scratch.bytes();
    if (found < needed) {
        fail(Exit::Internal,
             fmt::format("{}: scratch of {} bytes was expected, {} found; ask scratch_bytes() "
                         "with the same sizes",
                         op, needed, found));
    }
}

}  // namespace trainctl::contract
