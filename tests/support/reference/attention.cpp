// Attention of the reference backend: one query at a time, its probabilities in full.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "support/reference/elements.h"
#include "support/reference/families.h"

namespace trainctl::reference {
namespace {

// Where things lie in packed qkv.
struct Packed {
    AttentionSettings settings;
    [[nodiscard]] std::int64_t width() const {
        return (settings.heads + 2 * settings.kv_heads) * settings.head_dim;
    }
    [[nodiscard]] std::int64_t row(std::int64_t sample, std::int64_t position) const {
        return (sample * settings.length + position) * width();
    }
    [[nodiscard]] std::int64_t q(std::int64_t sample, std::int64_t position, std::int64_t head) const {
        return row(sample, position) + head * settings.head_dim;
    }
    [[nodiscard]] std::int64_t k(std::int64_t sample, std::int64_t position, std::int64_t head) const {
        const std::int64_t kv = head / (settings.heads / settings.kv_heads);
        return row(sample, position) + (settings.heads + kv) * settings.head_dim;
    }
    [[nodiscard]] std::int64_t v(std::int64_t sample, std::int64_t position, std::int64_t head) const {
        return k(sample, position, head) + settings.kv_heads * settings.head_dim;
    }
    [[nodiscard]] std::int64_t out(std::int64_t sample, std::int64_t position, std::int64_t head) const {
        return ((sample * settings.length + position) * settings.heads + head) * settings.head_dim;
    }
    [[nodiscard]] double mask(std::int64_t sample, std::int64_t head, std::int64_t query,
                              std::int64_t key) const {
        return dropout_factor(
            settings.dropout, sample,
            ((settings.first_head + head) * settings.length + query) * settings.length + key);
    }
};

double dot(const TensorView& a, std::int64_t at_a, const TensorView& b, std::int64_t at_b, std::int64_t n) {
    double sum = 0.0;
    for (std::int64_t i = 0; i < n; ++i) sum += element(a, at_a + i) * element(b, at_b + i);
    return sum;
}

template <class Visit>
void for_each_query(const AttentionSettings& settings, Visit visit) {
    for (std::int64_t sample = 0; sample < settings.batch; ++sample) {
        for (std::int64_t head = 0; head < settings.heads; ++head) {
            for (std::int64_t query = 0; query < settings.length; ++query) visit(sample, head, query);
        }
    }
}

}  // namespace

void ReferenceAttention::forward(Stream& stream, TensorView out, TensorView lse, TensorView qkv,
                                 AttentionSettings settings, TensorView /*scratch*/) {
    host_stream(stream).run([=] {
        const Packed at{settings};
        const std::int64_t dim = settings.head_dim;
        for_each_query(settings, [&](std::int64_t sample, std::int64_t head, std::int64_t query) {
            std::vector<double> score;
            for (std::int64_t key = 0; key <= query; ++key) {
                score.push_back(static_cast<double>(settings.scale) *
                                dot(qkv, at.q(sample, query, head), qkv, at.k(sample, key, head), dim));
            }
            const double top = *std::max_element(score.begin(), score.end());
            double sum = 0.0;
            for (const double value : score) sum += std::exp(value - top);
            const double log_sum = top + std::log(sum);
            set_element(lse, (sample * settings.heads + head) * settings.length + query, log_sum);
            for (std::int64_t d = 0; d < dim; ++d) {
                double value = 0.0;
                for (std::int64_t key = 0; key <= query; ++key) {
                    value += std::exp(score[static_cast<std::size_t>(key)] - log_sum) *
                             at.mask(sample, head, query, key) * element(qkv, at.v(sample, key, head) + d);
                }
                set_element(out, at.out(sample, query, head) + d, value);
            }
        });
    });
}

// With p = softmax(scale q k), o = sum_j p_j mask_j v_j:  dp_j = mask_j (do . v_j),
// ds_j = p_j (dp_j - sum_i p_i dp_i). The sum over i is written out rather than taken from do . o.
void ReferenceAttention::backward(Stream& stream, TensorView dqkv, TensorView dout, TensorView /*out*/,
                                  TensorView lse, TensorView qkv, AttentionSettings settings,
                                  TensorView /*scratch*/) {
    host_stream(stream).run([=] {
        const Packed at{settings};
        const std::int64_t dim = settings.head_dim;
        const auto scale = static_cast<double>(settings.scale);
        std::vector<double> gradient(static_cast<std::size_t>(dqkv.elements()), 0.0);
        const auto add = [&](std::int64_t index, double value) {
            gradient[static_cast<std::size_t>(index)] += value;
        };
        for_each_query(settings, [&](std::int64_t sample, std::int64_t head, std::int64_t query) {
            const double log_sum = element(lse, (sample * settings.heads + head) * settings.length + query);
            const std::int64_t q = at.q(sample, query, head);
            const std::int64_t o = at.out(sample, query, head);
            std::vector<double> p;
            std::vector<double> dp;
            double mean = 0.0;
            for (std::int64_t key = 0; key <= query; ++key) {
                p.push_back(std::exp(scale * dot(qkv, q, qkv, at.k(sample, key, head), dim) - log_sum));
                dp.push_back(at.mask(sample, head, query, key) *
                             dot(dout, o, qkv, at.v(sample, key, head), dim));
                mean += p.back() * dp.back();
            }
            for (std::int64_t key = 0; key <= query; ++key) {
                const auto j = static_cast<std::size_t>(key);
                const double ds = p[j] * (dp[j] - mean);
                const double kept = p[j] * at.mask(sample, head, query, key);
                const std::int64_t k = at.k(sample, key, head);
                const std::int64_t v = at.v(sample, key, head);
                for (std::int64_t d = 0; d < dim; ++d) {
                    add(q + d, scale * ds * element(qkv, k + d));
                    add(k + d, scale * ds * element(qkv, q + d));
                    add(v + d, kept * element(dout, o + d));
                }
            }
        });
        for (std::int64_t i = 0; i < dqkv.elements(); ++i)
            set_element(dqkv, i, gradient[static_cast<std::size_t>(i)]);
    });
}

void ReferenceAttention::rope(Stream& stream, TensorView qkv, TensorView table, AttentionSettings settings,
                              RopeDirection direction) {
    host_stream(stream).run([=] {
        const Packed at{settings};
        const std::int64_t half = settings.head_dim / 2;
        for (std::int64_t sample = 0; sample < settings.batch; ++sample) {
            for (std::int64_t position = 0; position < settings.length; ++position) {
                for (std::int64_t head = 0; head < settings.heads + settings.kv_heads; ++head) {
                    const std::int64_t base = at.row(sample, position) + head * settings.head_dim;
                    for (std::int64_t i = 0; i < half; ++i) {
                        const double c = element(table, (position * half + i) * 2);
                        double s = element(table, (position * half + i) * 2 + 1);
                        if (direction == RopeDirection::Backward) s = -s;
                        const double first = element(qkv, base + i);
                        const double second = element(qkv, base + half + i);
                        set_element(qkv, base + i, first * c - second * s);
                        set_element(qkv, base + half + i, second * c + first * s);
                    }
                }
            }
        }
    });
}

}  // namespace trainctl::reference
