// Attention, loss and optimizer of the cpu backend.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "ops/cpu/families.h"
#include "trainctl/device/host_stream.h"
#include "trainctl/ops/contract.h"

namespace trainctl::cpu {
namespace {

AttentionShape shape_of(const AttentionSettings& s) {
    return {s.batch, s.length, s.heads, s.kv_heads, s.head_dim, s.scale, mask_args(s.dropout), s.first_head};
}

}  // namespace

std::size_t CpuAttention::forward_scratch_bytes(AttentionSettings settings, DType dtype) const {
    return static_cast<std::size_t>(kernels_.forward_scratch(shape_of(settings), dtype) * threads_);
}

std::size_t CpuAttention::backward_scratch_bytes(AttentionSettings settings, DType dtype) const {
    return static_cast<std::size_t>(kernels_.backward_scratch(shape_of(settings), dtype) * threads_);
}

void CpuAttention::forward(Stream& stream, TensorView out, TensorView lse, TensorView qkv,
                           AttentionSettings settings, TensorView scratch) {
    contract::attention_forward(out, lse, qkv, settings);
    require_compute("attention.forward", qkv.dtype);
    contract::scratch("attention.forward", scratch, forward_scratch_bytes(settings, qkv.dtype));
    const AttentionForwardArgs args{qkv.dtype, shape_of(settings), out.data, lse.as<float>(),
                                    qkv.data,  scratch.data,       threads_};
    host_stream(stream).run([kernel = kernels_.forward, args] { kernel(args); });
}

void CpuAttention::backward(Stream& stream, TensorView dqkv, TensorView dout, TensorView out, TensorView lse,
                            TensorView qkv, AttentionSettings settings, TensorView scratch) {
    contract::attention_backward(dqkv, dout, out, lse, qkv, settings);
    require_compute("attention.backward", qkv.dtype);
    contract::scratch("attention.backward", scratch, backward_scratch_bytes(settings, qkv.dtype));
    const AttentionBackwardArgs args{qkv.dtype,       shape_of(settings), dqkv.data,    dout.data, out.data,
                                     lse.as<float>(), qkv.data,           scratch.data, threads_};
    host_stream(stream).run([kernel = kernels_.backward, args] { kernel(args); });
}

void CpuAttention::rope(Stream& stream, TensorView qkv, TensorView table, AttentionSettings settings,
                        RopeDirection direction) {
    contract::rope(qkv, table, settings);
    require_compute("attention.rope", qkv.dtype);
    const RopeArgs args{qkv.dtype,
                        shape_of(settings),
                        qkv.data,
                        table.as<float>(),
                        direction == RopeDirection::Forward ? 1.0F : -1.0F,
                        threads_};
    host_stream(stream).run([kernel = kernels_.rope, args] { kernel(args); });
}

void CpuLoss::cross_entropy(Stream& stream, TensorView losses, TensorView logits, TensorView targets,
                            LossSettings settings) {
    const auto [rows, width] = contract::cross_entropy(losses, logits, targets, settings);
    require_compute("cross_entropy", logits.dtype);
    const CrossEntropyArgs args{logits.dtype,
                                losses.as<float>(),
                                logits.data,
                                targets.as<std::int32_t>(),
                                rows,
                                width,
                                settings.vocab_size,
                                settings.gradient_scale,
                                settings.pass == LossPass::Train,
                                threads_};
    host_stream(stream).run([kernel = kernels_.cross_entropy, args] { kernel(args); });
}

namespace {

// `losses`, `sums` and `targets` may be empty.
VocabularyPartArgs part_args(TensorView losses, TensorView logits, TensorView maxima, TensorView sums,
                             TensorView targets, const LossSettings& settings, contract::RowSizes sizes,
                             int threads) {
    return {logits.dtype,
            losses.as<float>(),
            maxima.as<float>(),
            sums.as<float>(),
            logits.data,
            targets.as<std::int32_t>(),
            sizes.rows,
            sizes.columns,
            std::clamp<std::int64_t>(settings.vocab_size - settings.first_column, 0, sizes.columns),
            settings.first_column,
            settings.gradient_scale,
            settings.pass == LossPass::Train,
            threads};
}

}  // namespace

void CpuLoss::row_maxima(Stream& stream, TensorView maxima, TensorView logits, LossSettings settings) {
    const contract::RowSizes sizes = contract::row_maxima(maxima, logits, settings);
    require_compute("row_maxima", logits.dtype);
    const auto args = part_args({}, logits, maxima, {}, {}, settings, sizes, threads_);
    host_stream(stream).run([kernel = kernels_.row_maxima, args] { kernel(args); });
}

void CpuLoss::exponential_sums(Stream& stream, TensorView sums, TensorView logits, TensorView maxima,
                               TensorView targets, LossSettings settings) {
    const contract::RowSizes sizes = contract::exponential_sums(sums, logits, maxima, targets, settings);
    require_compute("exponential_sums", logits.dtype);
    const auto args = part_args({}, logits, maxima, sums, targets, settings, sizes, threads_);
    host_stream(stream).run([kernel = kernels_.exponential_sums, args] { kernel(args); });
}

void CpuLoss::finish_cross_entropy(Stream& stream, TensorView losses, TensorView logits, TensorView maxima,
                                   TensorView sums, TensorView targets, LossSettings settings) {
    const contract::RowSizes sizes =
        contract::finish_cross_entropy(losses, logits, maxima, sums, targets, settings);
    require_compute("finish_cross_entropy", logits.dtype);
    const auto args = part_args(losses, logits, maxima, sums, targets, settings, sizes, threads_);
    host_stream(stream).run([kernel = kernels_.finish_cross_entropy, args] { kernel(args); });
}

void CpuLoss::sum_losses(Stream& stream, TensorView total, TensorView losses, Into into) {
    contract::sum_losses(total, losses);
    require_compute("sum_losses", losses.dtype);
    host_stream(stream).run([total, losses, into] {
        double sum = 0.0;
        for (std::int64_t i = 0; i < losses.elements(); ++i) {
            sum += static_cast<double>(losses.as<float>()[i]);
        }
        if (into == Into::Accumulate) sum += *total.as<double>();
        *total.as<double>() = sum;
    });
}

void CpuOptimizer::sum_squares(Stream& stream, TensorView bins, TensorView gradient, Into into) {
    contract::sum_squares(bins, gradient);
    require_compute("sum_squares", gradient.dtype);
    const SumSquaresArgs args{bins.as<std::int64_t>(), gradient.as<float>(), gradient.elements(),
                              into == Into::Accumulate, threads_};
    host_stream(stream).run([kernel = kernels_.sum_squares, args] { kernel(args); });
}

namespace {

// The number that the bins stand for, rounded once or twice: digits are first made proper (0 <= digit <
// 2^32), so that the result depends on the number alone and not on how it was summed.
double sum_of_bins(const std::int64_t* bins) {
    std::array<std::int64_t, norm_bins> digits{};
    std::int64_t carry = 0;
    for (int bin = 0; bin < norm_digit_bins; ++bin) {
        const std::int64_t value = bins[bin] + carry;
        digits.at(static_cast<std::size_t>(bin)) = value & 0xFFFFFFFF;
        carry = value >> 32U;
    }
    digits.back() = carry;
    double sum = 0.0;
    for (int bin = 0; bin < norm_bins; ++bin) {  // small ones first
        sum += std::ldexp(static_cast<double>(digits.at(static_cast<std::size_t>(bin))),
                          32 * (bin - norm_zero_bin));
    }
    return sum;
}

}  // namespace

void CpuOptimizer::finish_norm(Stream& stream, TensorView scalars, TensorView bins, double max_norm,
                               double inverse_loss_scale) {
    contract::finish_norm(scalars, bins);
    host_stream(stream).run([scalars, bins, max_norm, inverse_loss_scale] {
        const auto* bin = bins.as<std::int64_t>();
        auto* scalar = scalars.as<double>();
        const bool finite = bin[norm_digit_bins] == 0;
        const double norm = finite ? std::sqrt(sum_of_bins(bin)) * inverse_loss_scale
                                   : std::numeric_limits<double>::quiet_NaN();
        double clip = inverse_loss_scale;
        if (max_norm > 0.0) clip *= std::min(1.0, max_norm / (norm + 1e-6));
        scalar[scalar_grad_norm] = norm;
        scalar[scalar_clip] = clip;
        scalar[scalar_apply] = std::isfinite(norm) && std::isfinite(scalar[scalar_loss_sum]) ? 1.0 : 0.0;
    });
}

void CpuOptimizer::adamw(Stream& stream, TensorView weights, TensorView master, TensorView m, TensorView v,
                         TensorView gradient, TensorView flags, TensorView scalars, AdamwSettings settings) {
    contract::adamw(weights, master, m, v, gradient, flags, scalars);
    require_compute("adamw", master.dtype);
    const auto t = static_cast<double>(settings.step);
    const double bias1 = 1.0 - std::pow(settings.beta1, t);
    const double bias2 = 1.0 - std::pow(settings.beta2, t);
    const AdamwArgs args{weights.dtype,
                         weights.data,
                         master.as<float>(),
                         m.as<float>(),
                         v.as<float>(),
                         gradient.as<float>(),
                         flags.as<std::uint8_t>(),
                         scalars.as<double>(),
                         master.elements(),
                         static_cast<float>(settings.beta1),
                         static_cast<float>(1.0 - settings.beta1),
                         static_cast<float>(settings.beta2),
                         static_cast<float>(1.0 - settings.beta2),
                         static_cast<float>(settings.lr / bias1),
                         static_cast<float>(1.0 / std::sqrt(bias2)),
                         static_cast<float>(settings.epsilon),
                         static_cast<float>(settings.lr * settings.weight_decay),
                         threads_};
    host_stream(stream).run([kernel = kernels_.adamw, args] { kernel(args); });
}

}  // namespace trainctl::cpu
