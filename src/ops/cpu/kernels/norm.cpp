// Residual addition fused with LayerNorm or RMSNorm. A row is read from memory once; later passes find it in
// the nearest cache.
#include "ops/cpu/loops.h"
#include "ops/cpu/math.h"

namespace trainctl::cpu {
namespace {

using simd::F;

template <class T>
void forward_row(const NormForwardArgs& a, std::int64_t row) {
    const std::int64_t width = a.width;
    const T* x = static_cast<const T*>(a.residual_in) + row * width;
    const T* gain = static_cast<const T*>(a.gain);
    const T* bias = static_cast<const T*>(a.bias);
    T* y = static_cast<T*>(a.y) + row * width;
    const float inverse_width = 1.0F / static_cast<float>(width);

    Totals sum;
    if (a.branch != nullptr) {
        const T* branch = static_cast<const T*>(a.branch) + row * width;
        T* out = static_cast<T*>(a.residual_out) + row * width;
        for_vectors_by_four(width, [&](std::int64_t i, auto lanes, int which) {
            store(out + i, load(x + i, lanes) + load(branch + i, lanes), lanes);
            sum.part[which] = sum.part[which] + load(out + i, lanes);  // as rounded: what later layers read
        });
        x = out;
    } else if (a.centred) {
        for_vectors_by_four(width, [&](std::int64_t i, auto lanes, int which) {
            sum.part[which] = sum.part[which] + load(x + i, lanes);
        });
    }
    const float mean = a.centred ? sum.total() * inverse_width : 0.0F;

    Totals squares;
    for_vectors_by_four(width, [&](std::int64_t i, auto lanes, int which) {
        const F centred = keep(load(x + i, lanes) - F(mean), lanes);
        squares.part[which] = fma(centred, centred, squares.part[which]);
    });
    float inverse = 0.0F;
    store(&inverse, F(1.0F) / sqrt(F(squares.total() * inverse_width + a.epsilon)), simd::Part{1});
    a.statistics[row * 2] = mean;
    a.statistics[row * 2 + 1] = inverse;

    for_vectors(width, [&](std::int64_t i, auto lanes) {
        const F normal = (load(x + i, lanes) - F(mean)) * F(inverse);
        const F shift = bias != nullptr ? load(bias + i, lanes) : F(0.0F);
        store(y + i, fma(normal, load(gain + i, lanes), shift), lanes);
    });
}

void forward(const NormForwardArgs& a) {
    with_storage(a.dtype, [&]<class T>(T*) {
        parallel_for(a.threads, row_chunks(a.rows), [&](std::int64_t chunk) {
            const std::int64_t begin = chunk * rows_per_chunk;
            const std::int64_t end = begin + rows_per_chunk < a.rows ? begin + rows_per_chunk : a.rows;
            for (std::int64_t row = begin; row < end; ++row) forward_row<T>(a, row);
        });
    });
}

// n = (x - mean) inverse, g = dy gain: dx = inverse (g - mean(g) - n mean(g n)); RMS: without mean(g).
template <class T>
void backward_row(const NormBackwardArgs& a, std::int64_t row, float* gain_sum, float* bias_sum) {
    const std::int64_t width = a.width;
    const T* x = static_cast<const T*>(a.residual) + row * width;
    const T* dy = static_cast<const T*>(a.dy) + row * width;
    const T* gain = static_cast<const T*>(a.gain);
    const T* through =
        a.dresidual_out != nullptr ? static_cast<const T*>(a.dresidual_out) + row * width : nullptr;
    T* dx = static_cast<T*>(a.dresidual_in) + row * width;
    const float mean = a.centred ? a.statistics[row * 2] : 0.0F;
    const float inverse = a.statistics[row * 2 + 1];
    const float inverse_width = 1.0F / static_cast<float>(width);

    Totals g_sum;
    Totals gn_sum;
    for_vectors_by_four(width, [&](std::int64_t i, auto lanes, int which) {
        const F dy_i = load(dy + i, lanes);
        const F normal = (load(x + i, lanes) - F(mean)) * F(inverse);
        const F g = dy_i * load(gain + i, lanes);  // 0 beyond the end
        g_sum.part[which] = g_sum.part[which] + g;
        gn_sum.part[which] = fma(g, normal, gn_sum.part[which]);
        store(gain_sum + i, fma(dy_i, normal, load(gain_sum + i, lanes)), lanes);
        if (bias_sum != nullptr) store(bias_sum + i, load(bias_sum + i, lanes) + dy_i, lanes);
    });
    const F mean_g(a.centred ? g_sum.total() * inverse_width : 0.0F);
    const F mean_gn(gn_sum.total() * inverse_width);
    for_vectors(width, [&](std::int64_t i, auto lanes) {
        const F normal = (load(x + i, lanes) - F(mean)) * F(inverse);
        const F g = load(dy + i, lanes) * load(gain + i, lanes);
        const F gradient = fnma(normal, mean_gn, g - mean_g) * F(inverse);
        store(dx + i, through != nullptr ? gradient + load(through + i, lanes) : gradient, lanes);
    });
}

void backward(const NormBackwardArgs& a) {
    const std::int64_t chunks = row_chunks(a.rows);
    with_storage(a.dtype, [&]<class T>(T*) {
        parallel_for(a.threads, chunks, [&](std::int64_t chunk) {
            float* gain_sum = a.partials + chunk * 2 * a.width;
            float* bias_sum = a.dbias != nullptr ? gain_sum + a.width : nullptr;
            for_vectors(a.width, [&](std::int64_t i, auto lanes) {
                store(gain_sum + i, F(0.0F), lanes);
                if (bias_sum != nullptr) store(bias_sum + i, F(0.0F), lanes);
            });
            const std::int64_t begin = chunk * rows_per_chunk;
            const std::int64_t end = begin + rows_per_chunk < a.rows ? begin + rows_per_chunk : a.rows;
            for (std::int64_t row = begin; row < end; ++row) backward_row<T>(a, row, gain_sum, bias_sum);
        });
    });
    add_partials(a.dgain, a.partials, chunks, 2 * a.width, a.width, a.accumulate, a.threads);
    if (a.dbias != nullptr) {
        add_partials(a.dbias, a.partials + a.width, chunks, 2 * a.width, a.width, a.accumulate, a.threads);
    }
}

}  // namespace

template <>
NormKernels norm_kernels<Level>() {
    return {&forward, &backward};
}

}  // namespace trainctl::cpu
