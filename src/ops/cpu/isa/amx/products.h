// How attention multiplies tiles of a storage type at this level: bf16 by AMX matrix tiles of 16 x 16 sums.
#pragma once

#include "ops/cpu/products_bf16.h"

namespace trainctl::cpu {
namespace {  // NOLINT

// The packed layouts of tile.h are those of the hardware: a tile of A is 16 rows of 16 units, one of B 16
// units of 16 columns. Registers: 0-3 sums (2 x 2), 4-5 A, 6-7 B.
struct ProductAmx : ProductBf16 {
    static constexpr std::int64_t rows = 16;
    static constexpr std::int64_t inner_rows = 32;  // 16 units

    // Loads the shape of the tiles, and gives them back: oneDNN configures them for itself.
    class Session {
      public:
        Session() {
            // Static: GCC 12 believes that the instruction reads 8 bytes and would drop stores to the others.
            alignas(64) static constexpr struct {
                std::uint8_t palette = 1;
                std::uint8_t start_row = 0;
                std::uint8_t reserved[14] = {};
                std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
                std::uint8_t tile_rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
            } shape;
            _tile_loadconfig(&shape);
        }
        ~Session() { _tile_release(); }
        Session(const Session&) = delete;
        Session& operator=(const Session&) = delete;
    };

    // C[16 r, 16 c] (=, +=) A B with r, c in {1, 2} tiles. Strides in units; `units` a multiple of 16.
    template <int r, int c>
    static void multiply_block(float* out, std::int64_t out_stride, const float* a, std::int64_t a_stride,
                               const float* b, std::int64_t b_stride, std::int64_t units, bool add) {
        const auto out_bytes = static_cast<std::size_t>(out_stride) * 4;
        const auto a_bytes = static_cast<std::size_t>(a_stride) * 4;
        const auto b_bytes = static_cast<std::size_t>(b_stride) * 4;
        float* below = out + 16 * out_stride;
        if (add) {
            _tile_loadd(0, out, out_bytes);
            if constexpr (c == 2) _tile_loadd(1, out + 16, out_bytes);
            if constexpr (r == 2) _tile_loadd(2, below, out_bytes);
            if constexpr (r == 2 && c == 2) _tile_loadd(3, below + 16, out_bytes);
        } else {
            _tile_zero(0);
            if constexpr (c == 2) _tile_zero(1);
            if constexpr (r == 2) _tile_zero(2);
            if constexpr (r == 2 && c == 2) _tile_zero(3);
        }
        for (std::int64_t unit = 0; unit < units; unit += 16) {
            _tile_loadd(4, a + unit, a_bytes);
            _tile_loadd(6, b + unit * b_stride, b_bytes);
            _tile_dpbf16ps(0, 4, 6);
            if constexpr (c == 2) {
                _tile_loadd(7, b + unit * b_stride + 16, b_bytes);
                _tile_dpbf16ps(1, 4, 7);
            }
            if constexpr (r == 2) {
                _tile_loadd(5, a + 16 * a_stride + unit, a_bytes);
                _tile_dpbf16ps(2, 5, 6);
                if constexpr (c == 2) _tile_dpbf16ps(3, 5, 7);
            }
        }
        _tile_stored(0, out, out_bytes);
        if constexpr (c == 2) _tile_stored(1, out + 16, out_bytes);
        if constexpr (r == 2) _tile_stored(2, below, out_bytes);
        if constexpr (r == 2 && c == 2) _tile_stored(3, below + 16, out_bytes);
    }

    // As tile.h's multiply; m and n multiples of 16.
    static void multiply(float* out, std::int64_t out_stride, const float* a, std::int64_t a_stride,
                         const float* b, std::int64_t b_stride, std::int64_t m, std::int64_t n,
                         std::int64_t units, bool add) {
        const std::int64_t inner = (units + 15) / 16 * 16;  // packed with zeros up to there
        for (std::int64_t row = 0; row < m; row += 32) {
            float* out_row = out + row * out_stride;
            const float* a_row = a + row * a_stride;
            const bool two = m - row >= 32;
            for (std::int64_t column = 0; column < n; column += 32) {
                float* to = out_row + column;
                const float* from = b + column;
                if (n - column >= 32) {
                    two ? multiply_block<2, 2>(to, out_stride, a_row, a_stride, from, b_stride, inner, add)
                        : multiply_block<1, 2>(to, out_stride, a_row, a_stride, from, b_stride, inner, add);
                } else {
                    two ? multiply_block<2, 1>(to, out_stride, a_row, a_stride, from, b_stride, inner, add)
                        : multiply_block<1, 1>(to, out_stride, a_row, a_stride, from, b_stride, inner, add);
                }
            }
        }
    }
};

template <class T>
struct ProductFor {
    using Type = ProductF32;
};
template <>
struct ProductFor<BFloat16> {
    using Type = ProductAmx;
};

}  // namespace
}  // namespace trainctl::cpu
