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
void row_loss(const CrossEntropyArgs& a, std::int64_t row) {
    T* logits = static_cast<T*>(a.logits) + row * a.width;
    const std::int32_t target = a.targets[row];
    if (target < 0) {
        a.losses[row] = 0.0F;
        if (a.train) zero(logits, a.width);
        return;
    }
    F tops[4] = {minus_infinity(), minus_infinity(), minus_infinity(), minus_infinity()};
    for_vectors_by_four(a.vocab, [&](std::int64_t i, auto lanes, int which) {
        tops[which] = max(tops[which], keep(load(logits + i, lanes), lanes, minus_infinity()));
    });
    const float top = simd::maximum(max(max(tops[0], tops[1]), max(tops[2], tops[3])));

    // Pieces of 1024 so that the sum of a large vocabulary loses nothing to a long chain of float additions.
    constexpr std::int64_t piece = 1024;
    double total = 0.0;
    for (std::int64_t begin = 0; begin < a.vocab; begin += piece) {
        const std::int64_t count = a.vocab - begin < piece ? a.vocab - begin : piece;
        Totals sum;
        for_vectors_by_four(count, [&](std::int64_t i, auto lanes, int which) {
            sum.part[which] =
                sum.part[which] +
                exp(keep(load(logits + begin + i, lanes), lanes, minus_infinity()) - F(top));  // e^-inf = 0
        });
        total += static_cast<double>(sum.total());
    }
    const float log_sum = top + log(static_cast<float>(total));
    float target_logit = 0.0F;
    store(&target_logit, load(logits + target, simd::Part{1}), simd::Part{1});
    a.losses[row] = log_sum - target_logit;
    if (!a.train) return;

    const F shift(log_sum);
    const F scale(a.gradient_scale);
    for_vectors(a.vocab, [&](std::int64_t i, auto lanes) {
        store(logits + i, exp(load(logits + i, lanes) - shift) * scale, lanes);
    });
    const float at_target = (exp(target_logit - log_sum) - 1.0F) * a.gradient_scale;
    store(logits + target, F(at_target), simd::Part{1});
    zero(logits + a.vocab, a.width - a.vocab);
}

void cross_entropy(const CrossEntropyArgs& a) {
    with_storage(a.dtype, [&]<class T>(T*) {
        parallel_for(a.threads, a.rows, [&](std::int64_t row) {
            const FlushSubnormals flush;  // gradients of what a trained model rules out
            row_loss<T>(a, row);
        });
    });
}

}  // namespace

template <>
LossKernels loss_kernels<Level>() {
    return {&cross_entropy};
}

}  // namespace trainctl::cpu
