// Activations, bias gradients, additions, dropout and casts: one pass over memory each.
#include "ops/cpu/loops.h"
#include "ops/cpu/mask.h"
#include "ops/cpu/math.h"

namespace trainctl::cpu {
namespace {

using simd::F;

// body(begin, end) over chunks of rows.
template <class Body>
void for_row_chunks(int threads, std::int64_t rows, const Body& body) {
    parallel_for(threads, row_chunks(rows), [&](std::int64_t chunk) {
        const std::int64_t begin = chunk * rows_per_chunk;
        body(chunk, begin, begin + rows_per_chunk < rows ? begin + rows_per_chunk : rows);
    });
}

// body(begin, count) over pieces of a flat range.
template <class Body>
void for_pieces(int threads, std::int64_t count, const Body& body) {
    constexpr std::int64_t piece = 4096;
    parallel_for(threads, (count + piece - 1) / piece, [&](std::int64_t index) {
        const std::int64_t begin = index * piece;
        body(begin, count - begin < piece ? count - begin : piece);
    });
}

// gelu_tanh(x) = x / 2 (1 + tanh u) = x sigmoid(2 u), u = sqrt(2/pi) (x + 0.044715 x^3)
constexpr float two_root_two_over_pi = 1.59576912F;
constexpr float cubic = 0.044715F;

inline F gelu_gate(F x, F x2) { return sigmoid(F(two_root_two_over_pi) * x * fma(F(cubic), x2, F(1.0F))); }

void bias_gelu_forward(const BiasGeluArgs& a) {
    with_storage(a.dtype, [&]<class T>(T*) {
        const T* bias = static_cast<const T*>(a.bias);
        for_row_chunks(a.threads, a.rows, [&](std::int64_t, std::int64_t begin, std::int64_t end) {
            for (std::int64_t row = begin; row < end; ++row) {
                const T* x = static_cast<const T*>(a.x) + row * a.width;
                T* y = static_cast<T*>(a.out) + row * a.width;
                for_vectors(a.width, [&](std::int64_t i, auto lanes) {
                    const F v = load(x + i, lanes) + load(bias + i, lanes);
                    store(y + i, v * gelu_gate(v, v * v), lanes);
                });
            }
        });
    });
}

void bias_gelu_backward(const BiasGeluArgs& a) {
    with_storage(a.dtype, [&]<class T>(T*) {
        const T* bias = static_cast<const T*>(a.bias);
        for_row_chunks(a.threads, a.rows, [&](std::int64_t chunk, std::int64_t begin, std::int64_t end) {
            float* sums = a.partials + chunk * a.width;
            for (std::int64_t row = begin; row < end; ++row) {
                const T* x = static_cast<const T*>(a.x) + row * a.width;
                const T* dy = static_cast<const T*>(a.dy) + row * a.width;
                T* dx = static_cast<T*>(a.out) + row * a.width;
                const bool first = row == begin;
                for_vectors(a.width, [&](std::int64_t i, auto lanes) {
                    const F v = load(x + i, lanes) + load(bias + i, lanes);
                    const F v2 = v * v;
                    const F s = gelu_gate(v, v2);
                    // d/dx x s = s + x s (1 - s) 2 u',  2 u' = 2 sqrt(2/pi) (1 + 3 x 0.044715 x^2)
                    const F slope = F(two_root_two_over_pi) * fma(F(3.0F * cubic), v2, F(1.0F));
                    const F derivative = s * fma(v * slope, F(1.0F) - s, F(1.0F));
                    const F gradient = load(dy + i, lanes) * derivative;
                    store(dx + i, gradient, lanes);
                    store(sums + i, first ? gradient : load(sums + i, lanes) + gradient, lanes);
                });
            }
        });
    });
    add_partials(a.dbias, a.partials, row_chunks(a.rows), a.width, a.width, a.accumulate, a.threads);
}

void swiglu_forward(const SwigluArgs& a) {
    with_storage(a.dtype, [&]<class T>(T*) {
        for_row_chunks(a.threads, a.rows, [&](std::int64_t, std::int64_t begin, std::int64_t end) {
            for (std::int64_t row = begin; row < end; ++row) {
                const T* gate = static_cast<const T*>(a.gate_up) + row * 2 * a.width;
                const T* up = gate + a.width;
                T* y = static_cast<T*>(a.out) + row * a.width;
                for_vectors(a.width, [&](std::int64_t i, auto lanes) {
                    const F g = load(gate + i, lanes);
                    store(y + i, g * sigmoid(g) * load(up + i, lanes), lanes);
                });
            }
        });
    });
}

void swiglu_backward(const SwigluArgs& a) {
    with_storage(a.dtype, [&]<class T>(T*) {
        for_row_chunks(a.threads, a.rows, [&](std::int64_t, std::int64_t begin, std::int64_t end) {
            for (std::int64_t row = begin; row < end; ++row) {
                const T* gate = static_cast<const T*>(a.gate_up) + row * 2 * a.width;
                const T* up = gate + a.width;
                const T* dy = static_cast<const T*>(a.dy) + row * a.width;
                T* dgate = static_cast<T*>(a.out) + row * 2 * a.width;
                T* dup = dgate + a.width;
                for_vectors(a.width, [&](std::int64_t i, auto lanes) {
                    const F g = load(gate + i, lanes);
                    const F s = sigmoid(g);
                    const F d = load(dy + i, lanes);
                    const F derivative = s * fma(g, F(1.0F) - s, F(1.0F));
                    store(dgate + i, d * load(up + i, lanes) * derivative, lanes);
                    store(dup + i, d * g * s, lanes);
                });
            }
        });
    });
}

void bias_backward(const BiasBackwardArgs& a) {
    with_storage(a.dtype, [&]<class T>(T*) {
        for_row_chunks(a.threads, a.rows, [&](std::int64_t chunk, std::int64_t begin, std::int64_t end) {
            float* sums = a.partials + chunk * a.width;
            const T* dy = static_cast<const T*>(a.dy);
            // Columns outside, rows inside: the sums stay in registers, and the rows of a chunk fit the
            // cache.
            for_vectors(a.width, [&](std::int64_t i, auto lanes) {
                F total(0.0F);
                for (std::int64_t row = begin; row < end; ++row) {
                    total = total + load(dy + row * a.width + i, lanes);
                }
                store(sums + i, total, lanes);
            });
        });
    });
    add_partials(a.dbias, a.partials, row_chunks(a.rows), a.width, a.width, a.accumulate, a.threads);
}

void add(const AddArgs& a) {
    with_storage(a.dtype, [&]<class T>(T*) {
        for_pieces(a.threads, a.count, [&](std::int64_t begin, std::int64_t count) {
            const T* first = static_cast<const T*>(a.a) + begin;
            const T* second = static_cast<const T*>(a.b) + begin;
            T* y = static_cast<T*>(a.y) + begin;
            for_vectors(count, [&](std::int64_t i, auto lanes) {
                store(y + i, load(first + i, lanes) + load(second + i, lanes), lanes);
            });
        });
    });
}

void dropout(const DropoutArgs& a) {
    with_storage(a.dtype, [&]<class T>(T*) {
        for (std::int64_t done = 0; done < a.count;) {
            const std::int64_t sample = (a.first + done) / a.per_sample;
            const std::int64_t element = (a.first + done) % a.per_sample;
            const std::int64_t left = a.count - done;
            const std::int64_t here = left < a.per_sample - element ? left : a.per_sample - element;
            const T* x = static_cast<const T*>(a.x) + done;
            T* y = static_cast<T*>(a.y) + done;
            for_pieces(a.threads, here, [&](std::int64_t begin, std::int64_t count) {
                for_vectors(count, [&](std::int64_t i, auto lanes) {
                    const F factor =
                        dropout_factors(a.mask, static_cast<std::uint64_t>(sample), element + begin + i);
                    store(y + begin + i, load(x + begin + i, lanes) * factor, lanes);
                });
            });
            done += here;
        }
    });
}

template <class To, class From>
void cast_all(const CastArgs& a) {
    for_pieces(a.threads, a.count, [&](std::int64_t begin, std::int64_t count) {
        const From* from = static_cast<const From*>(a.from) + begin;
        To* to = static_cast<To*>(a.to) + begin;
        for_vectors(count, [&](std::int64_t i, auto lanes) { store(to + i, load(from + i, lanes), lanes); });
    });
}

template <class To>
void cast_to(const CastArgs& a) {
    if (a.from_dtype == DType::BF16) {
        cast_all<To, BFloat16>(a);
    } else if (a.from_dtype == DType::F16) {
        cast_all<To, Float16>(a);
    } else {
        cast_all<To, float>(a);
    }
}

void cast(const CastArgs& a) {
    if (a.to_dtype == DType::BF16) {
        cast_to<BFloat16>(a);
    } else if (a.to_dtype == DType::F16) {
        cast_to<Float16>(a);
    } else {
        cast_to<float>(a);
    }
}

}  // namespace

template <>
ElementwiseKernels elementwise_kernels<Level>() {
    return {&bias_gelu_forward, &bias_gelu_backward,
            &swiglu_forward,    &swiglu_backward,
            &bias_backward,     &add,
            &dropout,           &cast};
}

}  // namespace trainctl::cpu
