// Small matrix products for attention tiles: C[m, n] (=, +=) A[m, k] B[k, n].
//
// A product type P says what an element is (float, or bf16) and how many of them lie in one 32-bit unit of
// the inner dimension (`step`). A is row-major in elements, B packed in units: unit [k / step][column] holds
// the `step` elements of the inner dimension for one column. So both are read 32 bits at a time, A by
// broadcast and B by vectors. Inner dimensions are padded to a unit and columns of B and C to whole vectors,
// all with zeros. Internal to the including source (see loops.h).
#pragma once

#include <cstdint>
#include <type_traits>

#include "products.h"
#include "simd.h"

namespace trainctl::cpu {
namespace {  // NOLINT

constexpr std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
    return (n + multiple - 1) / multiple * multiple;
}

enum class Sum { New, Added };

constexpr int block_rows = ProductF32::rows;
constexpr int block_vectors = simd::lanes == 16 ? 4 : 2;  // 4 x 4 of 32 registers, or 4 x 2 of 16

// One register block. `a_stride` in units.
template <class P, int vectors>
inline void multiply_block(float* c, std::int64_t c_stride, const float* a, std::int64_t a_stride,
                           const float* b, std::int64_t b_stride, std::int64_t units, Sum sum) {
    using simd::F;
    F total[block_rows][vectors];
    for (int row = 0; row < block_rows; ++row) {
        for (int v = 0; v < vectors; ++v) {
            total[row][v] =
                sum == Sum::Added ? load(c + row * c_stride + v * simd::lanes, simd::Full{}) : F(0.0F);
        }
    }
    for (std::int64_t unit = 0; unit < units; ++unit) {
        F columns[vectors];
        for (int v = 0; v < vectors; ++v)
            columns[v] = load(b + unit * b_stride + v * simd::lanes, simd::Full{});
        for (int row = 0; row < block_rows; ++row) {
            for (int v = 0; v < vectors; ++v) {
                total[row][v] = P::multiply_add(a + row * a_stride + unit, columns[v], total[row][v]);
            }
        }
    }
    for (int row = 0; row < block_rows; ++row) {
        for (int v = 0; v < vectors; ++v) {
            store(c + row * c_stride + v * simd::lanes, total[row][v], simd::Full{});
        }
    }
}

// Products with matrix instructions multiply by themselves.
template <class P>
concept MultipliesItself = requires {
    &P::multiply;
};

// m: a multiple of P::rows (rows of A and C beyond the tile exist); n: a multiple of lanes.
// Strides: of C in floats, of A in units, of B in units.
template <MultipliesItself P>
void multiply(float* c, std::int64_t c_stride, const float* a, std::int64_t a_stride, const float* b,
              std::int64_t b_stride, std::int64_t m, std::int64_t n, std::int64_t units, Sum sum) {
    P::multiply(c, c_stride, a, a_stride, b, b_stride, m, n, units, sum == Sum::Added);
}

template <class P>
void multiply(float* c, std::int64_t c_stride, const float* a, std::int64_t a_stride, const float* b,
              std::int64_t b_stride, std::int64_t m, std::int64_t n, std::int64_t units, Sum sum) {
    constexpr std::int64_t wide = block_vectors * simd::lanes;
    std::int64_t column = 0;
    for (; column + wide <= n; column += wide) {
        for (std::int64_t row = 0; row < m; row += block_rows) {
            multiply_block<P, block_vectors>(c + row * c_stride + column, c_stride, a + row * a_stride,
                                             a_stride, b + column, b_stride, units, sum);
        }
    }
    for (; column < n; column += simd::lanes) {
        for (std::int64_t row = 0; row < m; row += block_rows) {
            multiply_block<P, 1>(c + row * c_stride + column, c_stride, a + row * a_stride, a_stride,
                                 b + column, b_stride, units, sum);
        }
    }
}

// A[padded_rows, units(dim) units] from rows of T at `stride`; rows and elements beyond the source are 0.
template <class P, class T>
void pack_a(float* a, std::int64_t a_units, std::int64_t padded_rows, const T* source, std::int64_t stride,
            std::int64_t rows, std::int64_t dim) {
    using Element = typename P::Element;
    using simd::F;
    for (std::int64_t row = 0; row < padded_rows; ++row) {
        auto* to = reinterpret_cast<Element*>(a + row * a_units);
        const std::int64_t elements = a_units * P::step;
        std::int64_t i = 0;
        if (row < rows) {
            const T* from = source + row * stride;
            for (; i + simd::lanes <= dim; i += simd::lanes) {
                if constexpr (std::is_same_v<T, Element>) {
                    __builtin_memcpy(to + i, from + i, simd::lanes * sizeof(T));
                } else {
                    P::put(to + i, load(from + i, simd::Full{}));
                }
            }
            if (i < dim) {
                store(to + i, load(from + i, simd::Part{dim - i}), simd::Part{dim - i});
                i = dim;
            }
        }
        for (; i < elements; ++i) to[i] = Element{};
    }
}

// B[units, rows] from A[rows, units]: 32-bit transposition; both extents padded to lanes.
inline void transpose_units(float* b, std::int64_t b_stride, const float* a, std::int64_t a_stride,
                            std::int64_t rows, std::int64_t units) {
    using simd::F;
    for (std::int64_t row = 0; row < rows; row += simd::lanes) {
        for (std::int64_t unit = 0; unit < units; unit += simd::lanes) {
            F block[simd::lanes];
            for (int i = 0; i < simd::lanes; ++i)
                block[i] = load(a + (row + i) * a_stride + unit, simd::Full{});
            simd::transpose(block);
            for (int i = 0; i < simd::lanes; ++i) {
                store(b + (unit + i) * b_stride + row, block[i], simd::Full{});
            }
        }
    }
}

// B[padded_rows / step, width]: rows of T are the inner dimension, `width` is padded to lanes.
template <class P, class T>
void pack_b(float* b, std::int64_t width, std::int64_t padded_rows, const T* source, std::int64_t stride,
            std::int64_t rows, std::int64_t dim) {
    using simd::F;
    using simd::I;
    const auto row_at = [&](std::int64_t row, std::int64_t i) {
        if (row >= rows || i >= dim) return F(0.0F);
        const T* from = source + row * stride + i;
        return i + simd::lanes <= dim ? load(from, simd::Full{}) : load(from, simd::Part{dim - i});
    };
    for (std::int64_t row = 0; row < padded_rows; row += P::step) {
        float* to = b + row / P::step * width;
        for (std::int64_t i = 0; i < width; i += simd::lanes) {
            if constexpr (P::step == 1) {
                store(to + i, row_at(row, i), simd::Full{});
            } else {  // T is bf16: its float has the bits in the upper half
                const I low = simd::shift_right<16>(float_to_bits(row_at(row, i)));
                const I high = float_to_bits(row_at(row + 1, i));
                store(to + i, bits_to_float(low | high), simd::Full{});
            }
        }
    }
}

}  // namespace
}  // namespace trainctl::cpu
