// The cases.
#include "support/op_cases.h"

#include <algorithm>
#include <cmath>
#include <sstream>

namespace trainctl {
namespace {

using Role = CaseRole;

template <class... Parts>
std::string text(const Parts&... parts) {
    std::ostringstream out;
    (out << ... << parts);
    return out.str();
}

OpCase matmul(std::int64_t m, std::int64_t n, std::int64_t k, bool bias, Into into) {
    OpCase c;
    c.name = text("matmul ", m, "x", n, "x", k, bias ? " bias" : "",
                  into == Into::Accumulate ? " accumulate" : "");
    c.tensors = {{"x", Role::Activation, Shape{m, k}},
                 {"w", Role::Parameter, Shape{n, k}},
                 {"y", Role::Output, Shape{m, n}}};
    if (bias) c.tensors.push_back({"bias", Role::Parameter, Shape{n}});
    c.into = into;
    c.forward = [](Ops ops, Stream& s, CaseTensors& t) {
        ops.matmul.forward(s, t["y"], t["x"], t["w"], t.optional("bias"), t.scratch);
    };
    c.backward = [bias, into](Ops ops, Stream& s, CaseTensors& t) {
        ops.matmul.backward_input(s, t["dx"], t["dy"], t["w"], Into::Overwrite, t.scratch);
        ops.matmul.backward_weight(s, t["dw"], t["dy"], t["x"], into, t.scratch);
        if (bias) ops.elementwise.bias_backward(s, t["dbias"], t["dy"], into, t.scratch);
    };
    c.scratch_bytes = [m, n, k](Ops ops, DType dtype) {
        std::size_t most = ops.elementwise.column_sum_scratch_bytes(m, n);
        for (const MatmulKind kind :
             {MatmulKind::Forward, MatmulKind::BackwardInput, MatmulKind::BackwardWeight}) {
            most = std::max(most, ops.matmul.scratch_bytes(kind, m, n, k, dtype));
        }
        return most;
    };
    return c;
}

// dx accumulates: two uses of one activation.
OpCase matmul_input_twice(std::int64_t m, std::int64_t n, std::int64_t k) {
    OpCase c = matmul(m, n, k, false, Into::Overwrite);
    c.name += " input twice";
    c.tensors.push_back({"w2", Role::Parameter, Shape{n, k}});
    c.tensors.push_back({"y2", Role::Output, Shape{m, n}});
    c.slack = 2.0;
    const auto once = c;
    c.forward = [once](Ops ops, Stream& s, CaseTensors& t) {
        once.forward(ops, s, t);
        ops.matmul.forward(s, t["y2"], t["x"], t["w2"], {}, t.scratch);
    };
    c.backward = [once](Ops ops, Stream& s, CaseTensors& t) {
        once.backward(ops, s, t);
        ops.matmul.backward_input(s, t["dx"], t["dy2"], t["w2"], Into::Accumulate, t.scratch);
        ops.matmul.backward_weight(s, t["dw2"], t["dy2"], t["x"], Into::Overwrite, t.scratch);
    };
    return c;
}

OpCase norm(NormKind kind, std::int64_t m, std::int64_t width, bool branch, bool bias, Into into) {
    OpCase c;
    c.name =
        text(kind == NormKind::LayerNorm ? "layer norm " : "rms norm ", m, "x", width,
             branch ? " branch" : "", bias ? " bias" : "", into == Into::Accumulate ? " accumulate" : "");
    c.tensors = {{"x", Role::Activation, Shape{m, width}, 1.5, 0.4},
                 {"gain", Role::Parameter, Shape{width}, 0.3, 1.0},
                 {"statistics", Role::Saved, Shape{m, 2}},
                 {"y", Role::Output, Shape{m, width}}};
    if (bias) c.tensors.push_back({"bias", Role::Parameter, Shape{width}});
    if (branch) {
        c.tensors.push_back({"branch", Role::Activation, Shape{m, width}});
        c.tensors.push_back({"sum", Role::Output, Shape{m, width}});
    }
    c.into = into;
    c.slack = 2.0;
    const NormSettings settings{kind, 1e-5F};
    c.forward = [settings](Ops ops, Stream& s, CaseTensors& t) {
        ops.norm.forward(s, t["y"], t.optional("sum"), t["statistics"], t["x"], t.optional("branch"),
                         t["gain"], t.optional("bias"), settings);
    };
    c.backward = [settings, branch, into](Ops ops, Stream& s, CaseTensors& t) {
        ops.norm.backward(s, t["dx"], t["dgain"], t.optional("dbias"), t["dy"], t.optional("dsum"),
                          branch ? t["sum"] : t["x"], t["statistics"], t["gain"], into, settings, t.scratch);
        if (branch) ops.elementwise.cast(s, t["dbranch"], t["dx"]);
    };
    c.scratch_bytes = [m, width](Ops ops, DType dtype) {
        return ops.norm.backward_scratch_bytes(m, width, dtype);
    };
    return c;
}

OpCase attention(std::int64_t batch, std::int64_t length, std::int64_t heads, std::int64_t kv_heads,
                 std::int64_t head_dim, float dropout, std::int64_t first_head = 0) {
    OpCase c;
    c.name = text("attention batch ", batch, " length ", length, " heads ", heads, "/", kv_heads, " dim ",
                  head_dim, dropout > 0.0F ? " dropout" : "", first_head > 0 ? " part" : "");
    AttentionSettings settings;
    settings.batch = batch;
    settings.length = length;
    settings.heads = heads;
    settings.kv_heads = kv_heads;
    settings.head_dim = head_dim;
    settings.scale = 1.0F / std::sqrt(static_cast<float>(head_dim));
    settings.dropout = {dropout, philox_key(77), 13, (1ULL << 33U) + 5};
    settings.first_head = first_head;
    const std::int64_t rows = batch * length;
    c.tensors = {{"qkv", Role::Activation, Shape{rows, (heads + 2 * kv_heads) * head_dim}},
                 {"out", Role::Output, Shape{rows, heads * head_dim}},
                 {"lse", Role::Saved, Shape{batch, heads, length}}};
    c.slack = 4.0;
    c.forward = [settings](Ops ops, Stream& s, CaseTensors& t) {
        ops.attention.forward(s, t["out"], t["lse"], t["qkv"], settings, t.scratch);
    };
    c.backward = [settings](Ops ops, Stream& s, CaseTensors& t) {
        ops.attention.backward(s, t["dqkv"], t["dout"], t["out"], t["lse"], t["qkv"], settings, t.scratch);
    };
    c.scratch_bytes = [settings](Ops ops, DType dtype) {
        return std::max(ops.attention.forward_scratch_bytes(settings, dtype),
                        ops.attention.backward_scratch_bytes(settings, dtype));
    };
    return c;
}

OpCase rope(std::int64_t batch, std::int64_t length, std::int64_t heads, std::int64_t kv_heads,
            std::int64_t head_dim) {
    OpCase c;
    c.name = text("rope length ", length, " heads ", heads, "/", kv_heads, " dim ", head_dim);
    AttentionSettings settings;
    settings.batch = batch;
    settings.length = length;
    settings.heads = heads;
    settings.kv_heads = kv_heads;
    settings.head_dim = head_dim;
    const Shape shape{batch * length, (heads + 2 * kv_heads) * head_dim};
    c.tensors = {{"x", Role::Activation, shape},
                 {"table", Role::Table, Shape{length, head_dim / 2, 2}},
                 {"y", Role::Output, shape}};
    c.forward = [settings](Ops ops, Stream& s, CaseTensors& t) {
        ops.elementwise.cast(s, t["y"], t["x"]);
        ops.attention.rope(s, t["y"], t["table"], settings, RopeDirection::Forward);
    };
    c.backward = [settings](Ops ops, Stream& s, CaseTensors& t) {
        ops.elementwise.cast(s, t["dx"], t["dy"]);
        ops.attention.rope(s, t["dx"], t["table"], settings, RopeDirection::Backward);
    };
    return c;
}

OpCase bias_gelu(std::int64_t m, std::int64_t n, Into into) {
    OpCase c;
    c.name = text("bias gelu ", m, "x", n, into == Into::Accumulate ? " accumulate" : "");
    c.tensors = {{"x", Role::Activation, Shape{m, n}, 2.0},
                 {"bias", Role::Parameter, Shape{n}},
                 {"y", Role::Output, Shape{m, n}}};
    c.into = into;
    c.forward = [](Ops ops, Stream& s, CaseTensors& t) {
        ops.elementwise.bias_gelu_forward(s, t["y"], t["x"], t["bias"]);
    };
    c.backward = [into](Ops ops, Stream& s, CaseTensors& t) {
        ops.elementwise.cast(s, t["dx"], t["dy"]);  // in place, as models do it
        ops.elementwise.bias_gelu_backward(s, t["dx"], t["dbias"], t["dx"], t["x"], t["bias"], into,
                                           t.scratch);
    };
    c.scratch_bytes = [m, n](Ops ops, DType) { return ops.elementwise.column_sum_scratch_bytes(m, n); };
    return c;
}

OpCase swiglu(std::int64_t m, std::int64_t width) {
    OpCase c;
    c.name = text("swiglu ", m, "x", width);
    c.tensors = {{"x", Role::Activation, Shape{m, 2 * width}, 2.0}, {"y", Role::Output, Shape{m, width}}};
    c.forward = [](Ops ops, Stream& s, CaseTensors& t) { ops.elementwise.swiglu_forward(s, t["y"], t["x"]); };
    c.backward = [](Ops ops, Stream& s, CaseTensors& t) {
        ops.elementwise.swiglu_backward(s, t["dx"], t["dy"], t["x"]);
    };
    return c;
}

OpCase add(std::int64_t m, std::int64_t n) {
    OpCase c;
    c.name = text("add ", m, "x", n);
    c.tensors = {{"a", Role::Activation, Shape{m, n}},
                 {"b", Role::Activation, Shape{m, n}},
                 {"y", Role::Output, Shape{m, n}}};
    c.forward = [](Ops ops, Stream& s, CaseTensors& t) { ops.elementwise.add(s, t["y"], t["a"], t["b"]); };
    c.backward = [](Ops ops, Stream& s, CaseTensors& t) {
        ops.elementwise.cast(s, t["da"], t["dy"]);
        ops.elementwise.cast(s, t["db"], t["dy"]);
    };
    return c;
}

// `m` rows from `first_row` of the micro-batch on.
OpCase dropout(std::int64_t m, std::int64_t first_row, std::int64_t rows, std::int64_t n, float probability) {
    OpCase c;
    c.name = text("dropout ", m, "x", n, " in samples of ", rows, " from row ", first_row);
    c.tensors = {{"x", Role::Activation, Shape{m, n}}, {"y", Role::Output, Shape{m, n}}};
    const Dropout site{probability, philox_key(0x123456789ABCDEFULL), 17, (1ULL << 32U) - 1, first_row};
    c.forward = [site, rows](Ops ops, Stream& s, CaseTensors& t) {
        ops.elementwise.dropout(s, t["y"], t["x"], rows, site);
    };
    c.backward = [site, rows](Ops ops, Stream& s, CaseTensors& t) {
        ops.elementwise.dropout(s, t["dx"], t["dy"], rows, site);
    };
    return c;
}

OpCase embedding(std::int64_t batch, std::int64_t length, std::int64_t width, std::int32_t rows,
                 std::int64_t position_rows, std::int64_t first_row, Into into) {
    OpCase c;
    c.name = text("embedding ", batch, "x", length, " rows ", rows, " width ", width,
                  position_rows > 0 ? " positions" : "", first_row > 0 ? " part" : "",
                  into == Into::Accumulate ? " accumulate" : "");
    const std::int64_t m = batch * length;
    c.tensors = {{"table", Role::Parameter, Shape{rows, width}},
                 {"tokens", Role::Indices, Shape{m}, 1.0, 0.0, static_cast<std::int32_t>(rows + first_row)},
                 {"x", Role::Output, Shape{m, width}}};
    if (position_rows > 0) c.tensors.push_back({"positions", Role::Parameter, Shape{position_rows, width}});
    c.into = into;
    c.forward = [length, first_row](Ops ops, Stream& s, CaseTensors& t) {
        ops.embedding.forward(s, t["x"], t["tokens"], t["table"], t.optional("positions"), length, first_row);
    };
    c.backward = [length, first_row, into](Ops ops, Stream& s, CaseTensors& t) {
        ops.embedding.backward(s, t["dtable"], t.optional("dpositions"), t["dx"], t["tokens"], length,
                               first_row, into, into, t.scratch);
    };
    c.scratch_bytes = [m, rows](Ops ops, DType) { return ops.embedding.backward_scratch_bytes(m, rows); };
    return c;
}

OpCase cross_entropy(std::int64_t m, std::int32_t vocab, std::int64_t padded, double ignored) {
    OpCase c;
    c.name = text("cross entropy ", m, "x", vocab, "/", padded, ignored > 0.0 ? " ignored" : "");
    c.tensors = {{"logits", Role::Activation, Shape{m, padded}, 3.0},
                 {"targets", Role::Indices, Shape{m}, 1.0, 0.0, vocab, ignored},
                 {"losses", Role::WideOutput, Shape{m}, 1.0, 0.0, 0, 0.0, true}};
    // d sum(losses) / d logits: the scale is 1; other scales have a test of their own.
    c.forward = [vocab](Ops ops, Stream& s, CaseTensors& t) {
        ops.loss.cross_entropy(s, t["losses"], t["logits"], t["targets"], {vocab, 1.0F, LossPass::Evaluate});
    };
    c.backward = [vocab](Ops ops, Stream& s, CaseTensors& t) {
        ops.elementwise.cast(s, t["dlogits"], t["logits"]);
        ops.loss.cross_entropy(s, t["losses"], t["dlogits"], t["targets"], {vocab, 1.0F, LossPass::Train});
    };
    return c;
}

// `ranks` ranks hold `width` columns each.
OpCase parallel_cross_entropy(std::int64_t m, std::int32_t vocab, int ranks, std::int64_t width,
                              double ignored) {
    OpCase c;
    c.name = text("cross entropy over ", ranks, " ranks ", m, "x", vocab, "/", width * ranks,
                  ignored > 0.0 ? " ignored" : "");
    c.tensors = {{"targets", Role::Indices, Shape{m}, 1.0, 0.0, vocab, ignored},
                 {"losses", Role::WideOutput, Shape{m}, 1.0, 0.0, 0, 0.0, true}};
    for (int rank = 0; rank < ranks; ++rank) {
        c.tensors.push_back({text("logits", rank), Role::Activation, Shape{m, width}, 3.0});
        c.tensors.push_back({text("maxima", rank), Role::Saved, Shape{m}});
        c.tensors.push_back({text("sums", rank), Role::Saved, Shape{m, 2}});
    }
    const auto run = [vocab, ranks, width](Ops ops, Stream& s, CaseTensors& t, LossPass pass,
                                           const std::string& logits) {
        std::vector<TensorView> maxima;
        std::vector<TensorView> sums;
        for (int rank = 0; rank < ranks; ++rank) {
            maxima.push_back(t[text("maxima", rank)]);
            sums.push_back(t[text("sums", rank)]);
        }
        const auto each = [&](const auto& call) {
            for (int rank = 0; rank < ranks; ++rank)
                call(static_cast<std::size_t>(rank), t[logits + std::to_string(rank)],
                     LossSettings{vocab, 1.0F, pass, rank * width});
        };
        each([&](std::size_t rank, TensorView part, LossSettings settings) {
            ops.loss.row_maxima(s, maxima[rank], part, settings);
        });
        t.combine(s, maxima, CaseCombine::Maximum);
        each([&](std::size_t rank, TensorView part, LossSettings settings) {
            ops.loss.exponential_sums(s, sums[rank], part, maxima[rank], t["targets"], settings);
        });
        t.combine(s, sums, CaseCombine::Sum);
        each([&](std::size_t rank, TensorView part, LossSettings settings) {
            ops.loss.finish_cross_entropy(s, t["losses"], part, maxima[rank], sums[rank], t["targets"],
                                          settings);
        });
    };
    c.forward = [run](Ops ops, Stream& s, CaseTensors& t) { run(ops, s, t, LossPass::Evaluate, "logits"); };
    c.backward = [run, ranks](Ops ops, Stream& s, CaseTensors& t) {
        for (int rank = 0; rank < ranks; ++rank)
            ops.elementwise.cast(s, t[text("dlogits", rank)], t[text("logits", rank)]);
        run(ops, s, t, LossPass::Train, "dlogits");
    };
    return c;
}

}  // namespace

std::vector<OpCase> op_cases() {
    const Into over = Into::Overwrite;
    const Into accumulate = Into::Accumulate;
    return {
        matmul(1, 7, 5, true, over),
        matmul(19, 33, 48, true, accumulate),
        matmul(38, 64, 24, false, over),
        matmul(65, 97, 31, true, over),
        matmul(1, 128, 64, false, accumulate),
        matmul_input_twice(19, 24, 17),
        norm(NormKind::LayerNorm, 1, 24, true, true, over),
        norm(NormKind::LayerNorm, 37, 97, true, true, accumulate),
        norm(NormKind::LayerNorm, 5, 48, false, true, over),
        norm(NormKind::RmsNorm, 1, 33, true, false, over),
        norm(NormKind::RmsNorm, 70, 128, true, false, accumulate),
        norm(NormKind::RmsNorm, 19, 7, false, false, over),
        attention(2, 19, 6, 2, 8, 0.0F),
        attention(1, 1, 2, 1, 16, 0.0F),
        attention(1, 135, 2, 2, 64, 0.0F),
        attention(1, 65, 4, 2, 128, 0.0F),
        attention(1, 128, 1, 1, 24, 0.0F),
        attention(2, 19, 6, 2, 7, 0.25F),
        attention(1, 70, 2, 1, 64, 0.1F),
        attention(2, 19, 3, 1, 8, 0.25F, 3),
        rope(2, 19, 6, 2, 8),
        rope(1, 5, 3, 3, 64),
        rope(1, 3, 2, 1, 36),
        bias_gelu(1, 19, over),
        bias_gelu(67, 96, accumulate),
        swiglu(1, 5),
        swiglu(35, 96),
        add(3, 37),
        dropout(15, 0, 5, 7, 0.3F),
        dropout(38, 0, 19, 48, 0.1F),
        dropout(10, 28, 19, 5, 0.4F),
        embedding(2, 19, 24, 97, 32, 0, over),
        embedding(3, 7, 33, 11, 7, 0, accumulate),
        embedding(2, 19, 24, 40, 0, 57, over),
        cross_entropy(1, 97, 128, 0.0),
        cross_entropy(19, 97, 128, 0.3),
        cross_entropy(6, 2500, 2560, 0.0),
        parallel_cross_entropy(19, 97, 4, 32, 0.3),
        parallel_cross_entropy(3, 97, 8, 16, 0.0),
        parallel_cross_entropy(6, 2500, 2, 1280, 0.0),
    };
}

std::vector<OpCase> wide_op_cases() {
    const Into over = Into::Overwrite;
    const Into accumulate = Into::Accumulate;
    return {
        matmul(300, 264, 8, true, accumulate),
        norm(NormKind::LayerNorm, 600, 1104, true, true, accumulate),
        norm(NormKind::LayerNorm, 9, 520, true, true, over),
        norm(NormKind::LayerNorm, 3, 4000, false, true, over),
        norm(NormKind::LayerNorm, 2, 20000, true, true, accumulate),
        norm(NormKind::RmsNorm, 2500, 24, true, false, over),
        norm(NormKind::RmsNorm, 5, 8192, true, false, over),
        norm(NormKind::RmsNorm, 3, 8193, true, true, over),
        attention(1, 150, 3, 1, 100, 0.0F),
        attention(1, 140, 2, 1, 32, 0.1F),
        attention(1, 141, 2, 1, 120, 0.1F),
        attention(1, 75, 2, 1, 160, 0.0F),
        attention(1, 33, 2, 2, 250, 0.2F),
        rope(1, 3, 32, 8, 128),
        bias_gelu(300, 520, over),
        swiglu(70, 264),
        add(40, 1024),
        dropout(40, 5, 16, 264, 0.2F),
        embedding(4, 100, 264, 7, 128, 0, over),
        embedding(3, 50, 520, 300, 50, 0, accumulate),
        cross_entropy(3, 20001, 20096, 0.0),
        parallel_cross_entropy(3, 20001, 2, 10112, 0.3),
    };
}

}  // namespace trainctl
