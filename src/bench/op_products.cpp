#include <fmt/format.h>

#include <algorithm>

#include "bench/benched_op.h"
#include "trainctl/config/model_math.h"

namespace trainctl {
namespace {

struct Layer {
    const char* name;
    std::int64_t n;
    std::int64_t k;
};

std::vector<Layer> layers_of(const ModelSpec& model) {
    const std::int64_t qkv = (model.heads + 2 * model.kv_heads) * model.head_dim;
    const std::int64_t up = model.architecture == Architecture::Llama ? 2 * model.ffn_size : model.ffn_size;
    return {{"qkv", qkv, model.hidden_size},
            {"attention output", model.hidden_size, model.heads * model.head_dim},
            {"mlp up", up, model.hidden_size},
            {"mlp down", model.hidden_size, model.ffn_size},
            {"head", model.padded_vocab_size(), model.hidden_size}};
}

double dot(OpWorkspace& w, const TensorView& a, std::int64_t a_begin, std::int64_t a_step,
           const TensorView& b, std::int64_t b_begin, std::int64_t b_step, std::int64_t count) {
    double sum = 0.0;
    for (std::int64_t i = 0; i < count; ++i)
        sum += w.value_at(a, a_begin + i * a_step) * w.value_at(b, b_begin + i * b_step);
    return sum;
}

void add_dense(OpWorkspace& w, const Layer& layer, std::vector<BenchedOp>& cases) {
    const std::int64_t m = w.rows();
    const std::int64_t n = layer.n;
    const std::int64_t k = layer.k;
    const DType dtype = w.options.compute;
    MatmulOps& matmul = w.rank.backend->ops().matmul;
    Stream& stream = *w.rank.compute;
    const TensorView x = w.random(Shape{m, k}, dtype);
    const TensorView weight = w.random(Shape{n, k}, dtype, 0.05);
    const TensorView y = w.random(Shape{m, n}, dtype);
    const TensorView dx = w.zeros(Shape{m, k}, dtype);
    const TensorView dw = w.zeros(Shape{n, k}, DType::F32);
    const TensorView out = w.zeros(Shape{m, n}, dtype);
    const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
    const double tolerance = dtype == DType::F32 ? 1e-3 : 2e-2;
    const auto scratch = [&](MatmulKind kind) {
        return w.scratch(matmul.scratch_bytes(kind, m, n, k, dtype));
    };

    const TensorView s1 = scratch(MatmulKind::Forward);
    cases.push_back({fmt::format("{} forward", layer.name), flops, 0.0, tolerance,
                     [=, &matmul, &stream] { matmul.forward(stream, out, x, weight, {}, s1); },
                     [=, &w] {
                         WorstError worst;
                         for (const std::int64_t at : sampled(m * n)) {
                             worst.add(w.value_at(out, at),
                                       dot(w, x, at / n * k, 1, weight, at % n * k, 1, k));
                         }
                         return worst.value();
                     }});
    const TensorView s2 = scratch(MatmulKind::BackwardInput);
    cases.push_back(
        {fmt::format("{} input gradient", layer.name), flops, 0.0, tolerance,
         [=, &matmul, &stream] { matmul.backward_input(stream, dx, y, weight, Into::Overwrite, s2); },
         [=, &w] {
             WorstError worst;
             for (const std::int64_t at : sampled(m * k)) {
                 worst.add(w.value_at(dx, at), dot(w, y, at / k * n, 1, weight, at % k, k, n));
             }
             return worst.value();
         }});
    const TensorView s3 = scratch(MatmulKind::BackwardWeight);
    cases.push_back({fmt::format("{} weight gradient", layer.name), flops, 0.0, 1e-3,
                     [=, &matmul, &stream] { matmul.backward_weight(stream, dw, y, x, Into::Overwrite, s3); },
                     [=, &w] {
                         WorstError worst;
                         for (const std::int64_t at : sampled(n * k)) {
                             worst.add(w.value_at(dw, at), dot(w, y, at / k, n, x, at % k, k, m));
                         }
                         return worst.value();
                     }});
}

// Softmax of one query row, in double.
struct AttentionRow {
    std::vector<double> probabilities;
    double log_sum = 0.0;
};

class AttentionTruth {
  public:
    AttentionTruth(OpWorkspace& w, const AttentionSettings& settings, TensorView qkv)
        : w_(w), s_(settings), qkv_(qkv) {}

    [[nodiscard]] double q(std::int64_t row, std::int64_t head, std::int64_t d) const {
        return w_.value_at(qkv_, row * width() + head * s_.head_dim + d);
    }
    [[nodiscard]] double key(std::int64_t row, std::int64_t head, std::int64_t d) const {
        return w_.value_at(qkv_, row * width() + (s_.heads + group(head)) * s_.head_dim + d);
    }
    [[nodiscard]] double value(std::int64_t row, std::int64_t head, std::int64_t d) const {
        return w_.value_at(qkv_, row * width() + (s_.heads + s_.kv_heads + group(head)) * s_.head_dim + d);
    }
    [[nodiscard]] AttentionRow row(std::int64_t sample, std::int64_t query, std::int64_t head) const {
        AttentionRow result;
        double largest = -1e300;
        for (std::int64_t t = 0; t <= query; ++t) {
            double score = 0.0;
            for (std::int64_t d = 0; d < s_.head_dim; ++d) {
                score += q(sample * s_.length + query, head, d) * key(sample * s_.length + t, head, d);
            }
            result.probabilities.push_back(score * s_.scale);
            largest = std::max(largest, result.probabilities.back());
        }
        double sum = 0.0;
        for (double& p : result.probabilities) sum += p = std::exp(p - largest);
        for (double& p : result.probabilities) p /= sum;
        result.log_sum = largest + std::log(sum);
        return result;
    }

  private:
    [[nodiscard]] std::int64_t width() const { return (s_.heads + 2 * s_.kv_heads) * s_.head_dim; }
    [[nodiscard]] std::int64_t group(std::int64_t head) const { return head / (s_.heads / s_.kv_heads); }

    OpWorkspace& w_;
    AttentionSettings s_;
    TensorView qkv_;
};

double attention_forward_error(OpWorkspace& w, const AttentionSettings& s, const TensorView& qkv,
                               const TensorView& out) {
    const AttentionTruth truth(w, s, qkv);
    WorstError worst;
    for (const std::int64_t at : sampled(s.batch * s.length * s.heads, 12)) {
        const std::int64_t head = at % s.heads;
        const std::int64_t row = at / s.heads;
        const AttentionRow attention = truth.row(row / s.length, row % s.length, head);
        double expected = 0.0;
        for (std::size_t t = 0; t < attention.probabilities.size(); ++t) {
            expected += attention.probabilities[t] *
                        truth.value(row / s.length * s.length + static_cast<std::int64_t>(t), head, 0);
        }
        worst.add(w.value_at(out, row * s.heads * s.head_dim + head * s.head_dim), expected);
    }
    return worst.value();
}

// The gradient of q at sampled places: scale x sum over keys of p (dp - sum p dp) k.
double attention_backward_error(OpWorkspace& w, const AttentionSettings& s, const TensorView& qkv,
                                const TensorView& dout, const TensorView& dqkv) {
    const AttentionTruth truth(w, s, qkv);
    WorstError worst;
    for (const std::int64_t at : sampled(s.batch * s.length * s.heads, 12)) {
        const std::int64_t head = at % s.heads;
        const std::int64_t row = at / s.heads;
        const std::int64_t first = row / s.length * s.length;
        const AttentionRow attention = truth.row(row / s.length, row % s.length, head);
        std::vector<double> dp;
        double mean = 0.0;
        for (std::size_t t = 0; t < attention.probabilities.size(); ++t) {
            double sum = 0.0;
            for (std::int64_t d = 0; d < s.head_dim; ++d) {
                sum += w.value_at(dout, row * s.heads * s.head_dim + head * s.head_dim + d) *
                       truth.value(first + static_cast<std::int64_t>(t), head, d);
            }
            dp.push_back(sum);
            mean += attention.probabilities[t] * sum;
        }
        double expected = 0.0;
        for (std::size_t t = 0; t < dp.size(); ++t) {
            expected += attention.probabilities[t] * (dp[t] - mean) *
                        truth.key(first + static_cast<std::int64_t>(t), head, 0);
        }
        const std::int64_t width = (s.heads + 2 * s.kv_heads) * s.head_dim;
        worst.add(w.value_at(dqkv, row * width + head * s.head_dim), expected * s.scale);
    }
    return worst.value();
}

void add_attention(OpWorkspace& w, std::vector<BenchedOp>& cases) {
    const ModelSpec& model = w.options.model;
    AttentionSettings s;
    s.batch = w.options.batch;
    s.length = w.options.length;
    s.heads = model.heads;
    s.kv_heads = model.kv_heads;
    s.head_dim = model.head_dim;
    s.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(model.head_dim)));
    const DType dtype = w.options.compute;
    AttentionOps& attention = w.rank.backend->ops().attention;
    Stream& stream = *w.rank.compute;
    const std::int64_t m = w.rows();
    const Shape packed{m, (s.heads + 2 * s.kv_heads) * s.head_dim};
    const Shape heads{m, s.heads * s.head_dim};
    const TensorView qkv = w.random(packed, dtype);
    const TensorView dout = w.random(heads, dtype);
    const TensorView out = w.zeros(heads, dtype);
    const TensorView lse = w.zeros(Shape{s.batch, s.heads, s.length}, DType::F32);
    const TensorView dqkv = w.zeros(packed, dtype);
    const TensorView forward_scratch = w.scratch(attention.forward_scratch_bytes(s, dtype));
    const TensorView backward_scratch = w.scratch(attention.backward_scratch_bytes(s, dtype));
    const std::int64_t pairs_per_head = s.length * (s.length + 1) / 2;
    const auto pairs = static_cast<double>(s.batch * s.heads * pairs_per_head);
    const double tolerance = dtype == DType::F32 ? 1e-4 : 3e-2;
    cases.push_back(
        {"attention forward", 4.0 * pairs * static_cast<double>(s.head_dim), 0.0, tolerance,
         [=, &attention, &stream] { attention.forward(stream, out, lse, qkv, s, forward_scratch); },
         [=, &w] { return attention_forward_error(w, s, qkv, out); }});
    cases.push_back({"attention forward + backward", 12.0 * pairs * static_cast<double>(s.head_dim), 0.0,
                     tolerance,
                     [=, &attention, &stream] {
                         attention.forward(stream, out, lse, qkv, s, forward_scratch);
                         attention.backward(stream, dqkv, dout, out, lse, qkv, s, backward_scratch);
                     },
                     [=, &w] { return attention_backward_error(w, s, qkv, dout, dqkv); }});
}

}  // namespace

void add_product_cases(OpWorkspace& workspace, std::vector<BenchedOp>& cases) {
    for (const Layer& layer : layers_of(workspace.options.model)) add_dense(workspace, layer, cases);
    add_attention(workspace, cases);
}

std::vector<Product> benched_products(const OpBenchOptions& options) {
    const std::int64_t m = options.batch * options.length;
    const DType dtype = options.compute;
    std::vector<Product> products;
    for (const Layer& layer : layers_of(options.model)) {
        products.push_back({MatmulKind::Forward, m, layer.n, layer.k, dtype, dtype, false});
        products.push_back({MatmulKind::BackwardInput, m, layer.n, layer.k, dtype, dtype, false});
        products.push_back({MatmulKind::BackwardWeight, m, layer.n, layer.k, dtype, DType::F32, false});
    }
    return products;
}

}  // namespace trainctl
