#include <algorithm>
#include <cstring>

#include "bench/benched_op.h"

namespace trainctl {
namespace {

double gelu_tanh(double x) {
    const double inner = 0.7978845608028654 * (x + 0.044715 * x * x * x);
    return 0.5 * x * (1.0 + std::tanh(inner));
}

double silu(double x) { return x / (1.0 + std::exp(-x)); }

void add_norm(OpWorkspace& w, std::vector<BenchedOp>& cases) {
    const std::int64_t m = w.rows();
    const std::int64_t c = w.options.model.hidden_size;
    const DType dtype = w.options.compute;
    const bool layer_norm = w.options.model.architecture == Architecture::Gpt2;
    const NormSettings settings{layer_norm ? NormKind::LayerNorm : NormKind::RmsNorm, 1e-5F};
    NormOps& norm = w.rank.backend->ops().norm;
    Stream& stream = *w.rank.compute;
    const TensorView residual = w.random(Shape{m, c}, dtype);
    const TensorView branch = w.random(Shape{m, c}, dtype);
    const TensorView gain = w.random(Shape{c}, dtype);
    const TensorView bias = layer_norm ? w.random(Shape{c}, dtype) : TensorView{};
    const TensorView sum = w.zeros(Shape{m, c}, dtype);
    const TensorView y = w.zeros(Shape{m, c}, dtype);
    const TensorView statistics = w.zeros(Shape{m, 2}, DType::F32);
    const auto element = static_cast<double>(dtype_size(dtype));
    cases.push_back(
        {"residual + norm forward", 0.0, 4.0 * element * static_cast<double>(m * c),
         dtype == DType::F32 ? 1e-4 : 3e-2,
         [=, &norm, &stream] {
             norm.forward(stream, y, sum, statistics, residual, branch, gain, bias, settings);
         },
         [=, &w] {
             WorstError worst;
             for (const std::int64_t at : sampled(m * c)) {
                 const std::int64_t row = at / c;
                 double mean = 0.0;
                 double square = 0.0;
                 for (std::int64_t i = 0; i < c; ++i) {
                     const double value = w.value_at(sum, row * c + i);
                     mean += value / static_cast<double>(c);
                     square += value * value / static_cast<double>(c);
                 }
                 if (!layer_norm) mean = 0.0;
                 const double rstd = 1.0 / std::sqrt(square - mean * mean + 1e-5);
                 const double shift = layer_norm ? w.value_at(bias, at % c) : 0.0;
                 worst.add(w.value_at(y, at),
                           (w.value_at(sum, at) - mean) * rstd * w.value_at(gain, at % c) + shift);
                 worst.add(w.value_at(sum, at), w.value_at(residual, at) + w.value_at(branch, at));
             }
             return worst.value();
         }});
}

void add_activation(OpWorkspace& w, std::vector<BenchedOp>& cases) {
    const std::int64_t m = w.rows();
    const std::int64_t f = w.options.model.ffn_size;
    const DType dtype = w.options.compute;
    const auto element = static_cast<double>(dtype_size(dtype));
    const double tolerance = dtype == DType::F32 ? 1e-5 : 1e-2;
    ElementwiseOps& elementwise = w.rank.backend->ops().elementwise;
    Stream& stream = *w.rank.compute;
    const TensorView y = w.zeros(Shape{m, f}, dtype);
    if (w.options.model.architecture == Architecture::Gpt2) {
        const TensorView x = w.random(Shape{m, f}, dtype, 3.0);
        const TensorView bias = w.random(Shape{f}, dtype);
        cases.push_back({"bias + gelu forward", 0.0, 2.0 * element * static_cast<double>(m * f), tolerance,
                         [=, &elementwise, &stream] { elementwise.bias_gelu_forward(stream, y, x, bias); },
                         [=, &w] {
                             WorstError worst;
                             for (const std::int64_t at : sampled(m * f)) {
                                 worst.add(w.value_at(y, at),
                                           gelu_tanh(w.value_at(x, at) + w.value_at(bias, at % f)));
                             }
                             return worst.value();
                         }});
        return;
    }
    const TensorView gate_up = w.random(Shape{m, 2 * f}, dtype, 3.0);
    cases.push_back({"swiglu forward", 0.0, 3.0 * element * static_cast<double>(m * f), tolerance,
                     [=, &elementwise, &stream] { elementwise.swiglu_forward(stream, y, gate_up); },
                     [=, &w] {
                         WorstError worst;
                         for (const std::int64_t at : sampled(m * f)) {
                             const std::int64_t row = at / f * 2 * f;
                             worst.add(w.value_at(y, at), silu(w.value_at(gate_up, row + at % f)) *
                                                              w.value_at(gate_up, row + f + at % f));
                         }
                         return worst.value();
                     }});
}

void add_loss(OpWorkspace& w, std::vector<BenchedOp>& cases) {
    const std::int64_t m = std::min<std::int64_t>(w.rows(), 1024);
    const std::int64_t v = w.options.model.padded_vocab_size();
    const std::int64_t vocab = w.options.model.vocab_size;
    const DType dtype = w.options.compute;
    LossOps& loss = w.rank.backend->ops().loss;
    Stream& stream = *w.rank.compute;
    Device& device = w.rank.device;
    const TensorView source = w.random(Shape{m, v}, dtype, 4.0);
    const TensorView logits = w.zeros(Shape{m, v}, dtype);
    const TensorView losses = w.zeros(Shape{m}, DType::F32);
    const TensorView targets = w.zeros(Shape{m}, DType::I32);
    std::vector<std::int32_t> chosen;
    for (std::int64_t row = 0; row < m; ++row)
        chosen.push_back(static_cast<std::int32_t>(row * 7919 % vocab));
    w.upload(targets, chosen.data());
    const LossSettings settings{vocab, 1.0F, LossPass::Train};
    cases.push_back({"cross-entropy (with one copy of the logits)", 0.0,
                     5.0 * static_cast<double>(dtype_size(dtype)) * static_cast<double>(m * v), 1e-3,
                     [=, &loss, &stream, &device] {
                         device.copy(stream, logits.data, source.data, source.bytes());
                         loss.cross_entropy(stream, losses, logits, targets, settings);
                     },
                     [=, &w] {
                         WorstError worst;
                         for (const std::int64_t row : sampled(m, 8)) {
                             double sum = 0.0;
                             for (std::int64_t i = 0; i < vocab; ++i)
                                 sum += std::exp(w.value_at(source, row * v + i));
                             const std::int64_t target = w.on_host(targets).as<std::int32_t>()[row];
                             worst.add(w.value_at(losses, row),
                                       std::log(sum) - w.value_at(source, row * v + target));
                         }
                         return worst.value();
                     }});
}

void add_optimizer(OpWorkspace& w, std::vector<BenchedOp>& cases) {
    const std::int64_t n = w.options.updated_elements;
    OptimizerOps& optimizer = w.rank.backend->ops().optimizer;
    ElementwiseOps& elementwise = w.rank.backend->ops().elementwise;
    Device& device = w.rank.device;
    Stream& stream = *w.rank.compute;
    const TensorView before = w.random(Shape{n}, DType::F32);
    const TensorView gradient = w.random(Shape{n}, DType::F32);
    const TensorView master = w.zeros(Shape{n}, DType::F32);
    const TensorView m = w.zeros(Shape{n}, DType::F32);
    const TensorView v = w.zeros(Shape{n}, DType::F32);
    const TensorView weights =
        w.options.compute == DType::F32 ? TensorView{} : w.zeros(Shape{n}, w.options.compute);
    const TensorView flags = w.zeros(Shape{n / norm_block}, DType::U8);
    const TensorView scalars = w.zeros(Shape{step_scalars}, DType::F64);
    const TensorView bins = w.zeros(Shape{norm_bins}, DType::I64);
    w.upload(flags, std::vector<std::uint8_t>(flags.bytes(), block_decays).data());
    std::vector<double> decided(step_scalars);
    decided[scalar_clip] = 1.0;
    decided[scalar_apply] = 1.0;
    w.upload(scalars, decided.data());
    const AdamwSettings settings{1e-3, 0.9, 0.95, 1e-8, 0.1, 1};
    cases.push_back(
        {"adamw (with resetting its state)", 0.0,
         static_cast<double>(n) * (48.0 + static_cast<double>(dtype_size(w.options.compute))), 1e-5,
         [=, &optimizer, &elementwise, &stream, &device] {
             // The first update of fresh moments, every time.
             device.copy(stream, master.data, before.data, before.bytes());
             elementwise.fill_zero(stream, m);
             elementwise.fill_zero(stream, v);
             optimizer.adamw(stream, weights, master, m, v, gradient, flags, scalars, settings);
         },
         [=, &w] {
             WorstError worst;
             for (const std::int64_t at : sampled(n)) {
                 const double g = w.value_at(gradient, at);
                 const double w0 = w.value_at(before, at);
                 // Bias correction makes the first update lr x g / (|g| + eps).
                 worst.add(w.value_at(master, at), w0 - 1e-3 * (g / (std::abs(g) + 1e-8) + 0.1 * w0));
             }
             return worst.value();
         }});
    cases.push_back(
        {"sum of squares", 0.0, 4.0 * static_cast<double>(n), 1e-12,
         [=, &optimizer, &stream] { optimizer.sum_squares(stream, bins, gradient, Into::Overwrite); },
         [=, &w] {
             double found = 0.0;
             for (int bin = 0; bin < norm_digit_bins; ++bin) {
                 found += std::ldexp(static_cast<double>(w.on_host(bins).as<std::int64_t>()[bin]),
                                     32 * (bin - norm_zero_bin));
             }
             long double expected = 0.0L;
             for (std::int64_t i = 0; i < n; ++i) {
                 const long double value = w.value_at(gradient, i);
                 expected += value * value;
             }
             WorstError worst;
             worst.add(found, expected);
             return worst.value();
         }});
}

}  // namespace

void add_streaming_cases(OpWorkspace& workspace, std::vector<BenchedOp>& cases) {
    add_norm(workspace, cases);
    add_activation(workspace, cases);
    add_loss(workspace, cases);
    add_optimizer(workspace, cases);
}

}  // namespace trainctl
