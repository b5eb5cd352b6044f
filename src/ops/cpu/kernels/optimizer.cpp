// Sum of squares into integer bins, and AdamW in one pass.
#include <type_traits>

#include "ops/cpu/loops.h"
#include "ops/cpu/processor.h"
#include "trainctl/ops/ops.h"

namespace trainctl::cpu {
namespace {

using simd::F;

// How far ahead of their use streams from memory are asked for, in floats: the processor's own prefetchers
// stop at every page of 4 KiB, and each kernel here reads several streams at once.
constexpr std::int64_t ahead = 512;

// The sum of one block (a finite double >= 0) as 32-bit digits: bin b weighs 2^(32 (b - norm_zero_bin)).
// Exact: a sum of squares of floats is a multiple of 2^-298 and below 2^263, well inside the bins.
void add_digits(double sum, std::int64_t* bins) {
    std::uint64_t bits = 0;
    __builtin_memcpy(&bits, &sum, sizeof(bits));
    const auto exponent = static_cast<int>(bits >> 52U);
    if (exponent == 0) return;  // 0: the smallest possible sum of a non-zero element is normal
    // sum = mantissa 2^(exponent - 1075); counted from the lowest bin the mantissa starts at bit `position`
    const std::uint64_t mantissa = (bits & ((1ULL << 52U) - 1U)) | (1ULL << 52U);
    const int position = exponent - 1075 + 32 * norm_zero_bin;
    const int bin = position / 32;
    const int shift = position % 32;
    const std::uint64_t low = (mantissa & 0xFFFFFFFFU) << shift;  // below 2^63
    const std::uint64_t high = (mantissa >> 32U) << shift;        // below 2^52, counts from bin + 1
    bins[bin] += static_cast<std::int64_t>(low & 0xFFFFFFFFU);
    const std::uint64_t middle = (low >> 32U) + (high & 0xFFFFFFFFU);  // below 2^33
    bins[bin + 1] += static_cast<std::int64_t>(middle & 0xFFFFFFFFU);
    bins[bin + 2] += static_cast<std::int64_t>((high >> 32U) + (middle >> 32U));
}

void sum_squares(const SumSquaresArgs& a) {
    if (!a.accumulate) {
        for (int bin = 0; bin < norm_bins; ++bin) a.bins[bin] = 0;
    }
    const std::int64_t blocks = (a.count + norm_block - 1) / norm_block;
    constexpr std::int64_t group = 512;
    parallel_for(a.threads, (blocks + group - 1) / group, [&](std::int64_t index) {
        std::int64_t local[norm_bins] = {};
        const std::int64_t end = (index + 1) * group < blocks ? (index + 1) * group : blocks;
        for (std::int64_t block = index * group; block < end; ++block) {
            const float* gradient = a.gradient + block * norm_block;
            const std::int64_t rest = a.count - block * norm_block;
            simd::SquareSum sum;
            for_vectors(rest < norm_block ? rest : norm_block, [&](std::int64_t i, auto lanes) {
                prefetch(gradient + i + ahead);
                sum.add(load(gradient + i, lanes));
            });
            const double total = sum.total();
            // Squares of finite floats cannot overflow a double, so only inf and NaN fail this.
            if (total <= 1.7976931348623157e308) {
                add_digits(total, local);
            } else {
                ++local[norm_digit_bins];
            }
        }
        for (int bin = 0; bin < norm_bins; ++bin) {
            if (local[bin] == 0) continue;
#pragma omp atomic
            a.bins[bin] += local[bin];  // integers: the order does not matter
        }
    });
}

// The rounded weights are written but not read here, and wanted again only when the caches have held all
// others.
template <class T>
void store_weights(T* p, F x, simd::Part lanes) {
    store(p, x, lanes);
}
template <class T>
void store_weights(T* p, F x, simd::Full lanes) {
    if constexpr (std::is_same_v<T, BFloat16>) {
        if (reinterpret_cast<std::uintptr_t>(p) % (simd::lanes * sizeof(T)) == 0) return simd::stream(p, x);
    }
    store(p, x, lanes);
}

void adamw(const AdamwArgs& a) {
    if (a.scalars[scalar_apply] == 0.0) return;
    const F clip(static_cast<float>(a.scalars[scalar_clip]));
    const F beta1(a.beta1);
    const F beta2(a.beta2);
    const F other1(a.other1);
    const F other2(a.other2);
    const auto run = [&]<class T>(T* weights) {
        const std::int64_t blocks = (a.count + norm_block - 1) / norm_block;
        constexpr std::int64_t group = 32;
        parallel_for(a.threads, (blocks + group - 1) / group, [&](std::int64_t index) {
            // Moments of embedding rows that are not seen for long decay to subnormals, and rounding keeps
            // them there.
            const FlushSubnormals flush;
            const std::int64_t end = (index + 1) * group < blocks ? (index + 1) * group : blocks;
            for (std::int64_t block = index * group; block < end; ++block) {
                const std::int64_t base = block * norm_block;
                const std::int64_t rest = a.count - base;
                const F decay((a.flags[block] & block_decays) != 0 ? a.decay : 0.0F);
                for_vectors(rest < norm_block ? rest : norm_block, [&](std::int64_t i, auto lanes) {
                    prefetch(a.gradient + base + i + ahead);
                    prefetch(a.m + base + i + ahead);
                    prefetch(a.v + base + i + ahead);
                    prefetch(a.master + base + i + ahead);
                    const F g = load(a.gradient + base + i, lanes) * clip;
                    const F m = fma(beta1, load(a.m + base + i, lanes), other1 * g);
                    const F v = fma(beta2, load(a.v + base + i, lanes), other2 * g * g);
                    const F root = fma(sqrt(v), F(a.inverse_root_bias), F(a.epsilon));
                    const F old = load(a.master + base + i, lanes);
                    const F master = old - fma(decay, old, F(a.step_size) * m / root);
                    store(a.m + base + i, m, lanes);
                    store(a.v + base + i, v, lanes);
                    store(a.master + base + i, master, lanes);
                    if (weights != nullptr) store_weights(weights + base + i, master, lanes);
                });
            }
            fence_streams();
        });
    };
    if (a.weight_dtype == DType::BF16) {
        run(static_cast<BFloat16*>(a.weights));
    } else if (a.weight_dtype == DType::F16) {
        run(static_cast<Float16*>(a.weights));
    } else {
        run(static_cast<float*>(a.weights));
    }
}

}  // namespace

template <>
OptimizerKernels optimizer_kernels<Level>() {
    return {&sum_squares, &adamw};
}

}  // namespace trainctl::cpu
