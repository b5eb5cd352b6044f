// Loss and optimizer of the reference backend, and the backend itself.
#include <algorithm>
#include <cmath>
#include <limits>

#include "support/reference/elements.h"
#include "support/reference/families.h"
#include "support/reference_ops.h"

namespace trainctl::reference {

void ReferenceLoss::cross_entropy(Stream& stream, TensorView losses, TensorView logits, TensorView targets,
                                  LossSettings settings) {
    host_stream(stream).run([=] {
        const std::int64_t width = columns_of(logits);
        for (std::int64_t row = 0; row < rows_of(logits); ++row) {
            const std::int64_t base = row * width;
            const std::int32_t target = targets.as<std::int32_t>()[row];
            double top = element(logits, base);
            for (std::int64_t c = 0; c < settings.vocab_size; ++c)
                top = std::max(top, element(logits, base + c));
            double sum = 0.0;
            for (std::int64_t c = 0; c < settings.vocab_size; ++c)
                sum += std::exp(element(logits, base + c) - top);
            const double log_sum = top + std::log(sum);
            set_element(losses, row, target < 0 ? 0.0 : log_sum - element(logits, base + target));
            if (settings.pass == LossPass::Evaluate) continue;
            for (std::int64_t c = 0; c < width; ++c) {
                double gradient = 0.0;
                if (target >= 0 && c < settings.vocab_size) {
                    gradient = std::exp(element(logits, base + c) - log_sum) - (c == target ? 1.0 : 0.0);
                }
                set_element(logits, base + c, gradient * static_cast<double>(settings.gradient_scale));
            }
        }
    });
}

namespace {

// Logical columns among those at hand.
std::int64_t logical_columns(const TensorView& logits, const LossSettings& settings) {
    return std::clamp<std::int64_t>(settings.vocab_size - settings.first_column, 0, columns_of(logits));
}

}  // namespace

void ReferenceLoss::row_maxima(Stream& stream, TensorView maxima, TensorView logits, LossSettings settings) {
    host_stream(stream).run([=] {
        for (std::int64_t row = 0; row < rows_of(logits); ++row) {
            double top = -std::numeric_limits<double>::infinity();
            for (std::int64_t c = 0; c < logical_columns(logits, settings); ++c)
                top = std::max(top, element(logits, row * columns_of(logits) + c));
            set_element(maxima, row, top);
        }
    });
}

void ReferenceLoss::exponential_sums(Stream& stream, TensorView sums, TensorView logits, TensorView maxima,
                                     TensorView targets, LossSettings settings) {
    host_stream(stream).run([=] {
        for (std::int64_t row = 0; row < rows_of(logits); ++row) {
            const std::int64_t target = targets.as<std::int32_t>()[row] - settings.first_column;
            double sum = 0.0;
            double at_target = 0.0;
            for (std::int64_t c = 0; c < logical_columns(logits, settings); ++c) {
                const double below = element(logits, row * columns_of(logits) + c) - element(maxima, row);
                sum += std::exp(below);
                if (c == target && targets.as<std::int32_t>()[row] >= 0) at_target = below;
            }
            set_element(sums, 2 * row, sum);
            set_element(sums, 2 * row + 1, at_target);
        }
    });
}

void ReferenceLoss::finish_cross_entropy(Stream& stream, TensorView losses, TensorView logits,
                                         TensorView maxima, TensorView sums, TensorView targets,
                                         LossSettings settings) {
    host_stream(stream).run([=] {
        for (std::int64_t row = 0; row < rows_of(logits); ++row) {
            const bool ignored = targets.as<std::int32_t>()[row] < 0;
            const std::int64_t target = targets.as<std::int32_t>()[row] - settings.first_column;
            const double log_total = std::log(element(sums, 2 * row));
            set_element(losses, row, ignored ? 0.0 : log_total - element(sums, 2 * row + 1));
            if (settings.pass == LossPass::Evaluate) continue;
            for (std::int64_t c = 0; c < columns_of(logits); ++c) {
                const std::int64_t at = row * columns_of(logits) + c;
                double gradient = 0.0;
                if (!ignored && c < logical_columns(logits, settings)) {
                    gradient = std::exp(element(logits, at) - element(maxima, row) - log_total) -
                               (c == target ? 1.0 : 0.0);
                }
                set_element(logits, at, gradient * static_cast<double>(settings.gradient_scale));
            }
        }
    });
}

void ReferenceLoss::sum_losses(Stream& stream, TensorView total, TensorView losses, Into into) {
    host_stream(stream).run([=] {
        double sum = 0.0;
        for (std::int64_t row = 0; row < losses.elements(); ++row) sum += element(losses, row);
        put(total, 0, sum, into);
    });
}

void ReferenceOptimizer::sum_squares(Stream& stream, TensorView bins, TensorView gradient, Into into) {
    host_stream(stream).run([=] {
        auto* bin = bins.as<std::int64_t>();
        if (into == Into::Overwrite) std::fill(bin, bin + norm_bins, 0);
        for (std::int64_t begin = 0; begin < gradient.elements(); begin += norm_block) {
            double rest = 0.0;
            for (std::int64_t i = begin; i < std::min(begin + norm_block, gradient.elements()); ++i) {
                rest += element(gradient, i) * element(gradient, i);
            }
            if (!std::isfinite(rest)) {
                ++bin[norm_digit_bins];
                continue;
            }
            for (int b = norm_digit_bins - 1; b >= 0; --b) {
                const double weight = std::ldexp(1.0, 32 * (b - norm_zero_bin));
                const double digit = std::floor(rest / weight);  // exact: the weight is a power of two
                bin[b] += static_cast<std::int64_t>(digit);
                rest -= digit * weight;
            }
        }
    });
}

void ReferenceOptimizer::finish_norm(Stream& stream, TensorView scalars, TensorView bins, double max_norm,
                                     double inverse_loss_scale) {
    host_stream(stream).run([=] {
        const auto* bin = bins.as<std::int64_t>();
        long double sum = 0.0L;
        for (int b = 0; b < norm_digit_bins; ++b) {
            sum += std::ldexp(static_cast<long double>(bin[b]), 32 * (b - norm_zero_bin));
        }
        double norm = static_cast<double>(std::sqrt(sum)) * inverse_loss_scale;
        if (bin[norm_digit_bins] != 0) norm = std::nan("");
        const bool finite = std::isfinite(norm) && std::isfinite(element(scalars, scalar_loss_sum));
        double clip = inverse_loss_scale;
        if (max_norm > 0.0 && max_norm / (norm + 1e-6) < 1.0) clip *= max_norm / (norm + 1e-6);
        set_element(scalars, scalar_grad_norm, norm);
        set_element(scalars, scalar_clip, clip);
        set_element(scalars, scalar_apply, finite ? 1.0 : 0.0);
    });
}

void ReferenceOptimizer::adamw(Stream& stream, TensorView weights, TensorView master, TensorView m,
                               TensorView v, TensorView gradient, TensorView flags, TensorView scalars,
                               AdamwSettings settings) {
    host_stream(stream).run([=] {
        if (element(scalars, scalar_apply) == 0.0) return;
        const auto t = static_cast<double>(settings.step);
        for (std::int64_t i = 0; i < master.elements(); ++i) {
            const double g = element(gradient, i) * element(scalars, scalar_clip);
            const double m_new = settings.beta1 * element(m, i) + (1.0 - settings.beta1) * g;
            const double v_new = settings.beta2 * element(v, i) + (1.0 - settings.beta2) * g * g;
            const double m_hat = m_new / (1.0 - std::pow(settings.beta1, t));
            const double v_hat = v_new / (1.0 - std::pow(settings.beta2, t));
            const bool decays = (flags.as<std::uint8_t>()[i / norm_block] & block_decays) != 0;
            const double old = element(master, i);
            const double decay = decays ? settings.weight_decay * old : 0.0;
            set_element(master, i,
                        old - settings.lr * (m_hat / (std::sqrt(v_hat) + settings.epsilon) + decay));
            set_element(m, i, m_new);
            set_element(v, i, v_new);
            if (!weights.empty()) set_element(weights, i, element(master, i));
        }
    });
}

namespace {

class ReferenceBackend final : public OpsBackend {
  public:
    Ops ops() override { return {matmul_, norm_, attention_, elementwise_, embedding_, loss_, optimizer_}; }

  private:
    ReferenceMatmul matmul_;
    ReferenceNorm norm_;
    ReferenceAttention attention_;
    ReferenceElementwise elementwise_;
    ReferenceEmbedding embedding_;
    ReferenceLoss loss_;
    ReferenceOptimizer optimizer_;
};

}  // namespace
}  // namespace trainctl::reference

namespace trainctl {

std::unique_ptr<OpsBackend> make_reference_ops() { return std::make_unique<reference::ReferenceBackend>(); }

}  // namespace trainctl
