// Softmax and cross-entropy over one row of logits at a time, gradients in place.
#include "ops/cpu/loops.h"
#include "ops/cpu/math.h"
#include "ops/cpu/processor.h"

namespace trainctl::cpu {
namespace {

using simd::F;

template <class T>
void zero(T* p, std::int64_t count) {
    for_vectors(count, [&](std::int64_t i, auto lanes) { store(p + i, F(0.0F), lanes); });
}

template <class T>
float row_maximum(const T* logits, std::int64_t vocab) {
    F tops[4] = {minus_infinity(), minus_infinity(), minus_infinity(), minus_infinity()};
    for_vectors_by_four(vocab, [&](std::int64_t i, auto lanes, int which) {
        tops[which] = max(tops[which], keep(load(logits + i, lanes), lanes, minus_infinity()));
    });
    return simd::maximum(max(max(tops[0], tops[1]), max(tops[2], tops[3])));
}

// Sum of exp(logit - top). Pieces of 1024 so that the sum of a large vocabulary loses nothing to a long chain
// of float additions.
template <class T>
float exponential_sum(const T* logits, std::int64_t vocab, float top) {
    constexpr std::int64_t piece = 1024;
    double total = 0.0;
    for (std::int64_t begin = 0; begin < vocab; begin += piece) {
        const std::int64_t count = vocab - begin < piece ? vocab - begin : piece;
        Totals sum;
        for_vectors_by_four(count, [&](std::int64_t i, auto lanes, int which) {
            sum.part[which] =
                sum.part[which] +
                exp(keep(load(logits + begin + i, lanes), lanes, minus_infinity()) - F(top));  // e^-inf = 0
        });
        total += static_cast<double>(sum.total());
    }
    return static_cast<float>(total);
}

template <class T>
float logit_at(const T* logits, std::int64_t column) {
    float value = 0.0F;
    store(&value, load(logits + column, simd::Part{1}), simd::Part{1});
    return value;
}

// logits become softmax x scale; padded columns 0.
template <class T>
void to_softmax(T* logits, std::int64_t vocab, std::int64_t width, float log_sum, float gradient_scale) {
    const F shift(log_sum);
    const F scale(gradient_scale);
    for_vectors(vocab, [&](std::int64_t i, auto lanes) {
        store(logits + i, exp(load(logits + i, lanes) - shift) * scale, lanes);
    });
    zero(logits + vocab, width - vocab);
}

template <class T>
void set_target_gradient(T* logits, std::int64_t column, float log_probability, float gradient_scale) {
    const float at_target = (exp(log_probability) - 1.0F) * gradient_scale;
    store(logits + column, F(at_target), simd::Part{1});
}

template <class T>
void row_loss(const CrossEntropyArgs& a, std::int64_t row) {
    T* logits = static_cast<T*>(a.logits) + row * a.width;
    const std::int32_t target = a.targets[row];
    if (target < 0) {
        a.losses[row] = 0.0F;
        if (a.train) zero(logits, a.width);
        return;
    }
    const float top = row_maximum(logits, a.vocab);
    const float log_sum = top + log(exponential_sum(logits, a.vocab, top));
    const float target_logit = logit_at(logits, target);
    a.losses[row] = log_sum - target_logit;
    if (!a.train) return;
    to_softmax(logits, a.vocab, a.width, log_sum, a.gradient_scale);
    set_target_gradient(logits, target, target_logit - log_sum, a.gradient_scale);
}

void cross_entropy(const CrossEntropyArgs& a) {
    with_storage(a.dtype, [&]<class T>(T*) {
        parallel_for(a.threads, a.rows, [&](std::int64_t row) {
            const FlushSubnormals flush;  // gradients of what a trained model rules out
            row_loss<T>(a, row);
        });
    });
}

// body(storage, row) for all rows of one part of the vocabulary.
template <class Body>
void for_rows(const VocabularyPartArgs& a, const Body& body) {
    with_storage(a.dtype, [&]<class T>(T*) {
        parallel_for(a.threads, a.rows, [&](std::int64_t row) {
            const FlushSubnormals flush;
            body(static_cast<T*>(a.logits) + row * a.width, row);
        });
    });
}

// Column of the row's target, or -1: ignored, or another rank's.
std::int64_t target_column(const VocabularyPartArgs& a, std::int64_t row) {
    const std::int64_t column = a.targets[row] - a.first_column;
    return a.targets[row] >= 0 && column >= 0 && column < a.vocab ? column : -1;
}

void row_maxima(const VocabularyPartArgs& a) {
    for_rows(a, [&](const auto* logits, std::int64_t row) { a.maxima[row] = row_maximum(logits, a.vocab); });
}

void exponential_sums(const VocabularyPartArgs& a) {
    for_rows(a, [&](const auto* logits, std::int64_t row) {
        const std::int64_t column = target_column(a, row);
        a.sums[2 * row] = exponential_sum(logits, a.vocab, a.maxima[row]);
        a.sums[2 * row + 1] = column < 0 ? 0.0F : logit_at(logits, column) - a.maxima[row];
    });
}

void finish_cross_entropy(const VocabularyPartArgs& a) {
    for_rows(a, [&](auto* logits, std::int64_t row) {
        if (a.targets[row] < 0) {
            a.losses[row] = 0.0F;
            if (a.train) zero(logits, a.width);
            return;
        }
        const float log_total = log(a.sums[2 * row]);
        const float at_target = a.sums[2 * row + 1];
        a.losses[row] = log_total - at_target;
        if (!a.train) return;
        to_softmax(logits, a.vocab, a.width, a.maxima[row] + log_total, a.gradient_scale);
        const std::int64_t column = target_column(a, row);
        if (column >= 0) set_target_gradient(logits, column, at_target - log_total, a.gradient_scale);
    });
}

}  // namespace

template <>
LossKernels loss_kernels<Level>() {
    return {&cross_entropy, &row_maxima, &exponential_sums, &finish_cross_entropy};
}

}  // namespace trainctl::cpu
