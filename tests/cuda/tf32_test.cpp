// F32 products rounded to TF32 on request.
#include <cmath>
#include <random>

#include "cuda/mirrors.h"
#include "support/catch.h"

namespace trainctl::cuda_test {
namespace {

struct Found {
    std::vector<float> values;
    double worst = 0.0;  // error of an element against the sum of its terms' magnitudes
};

// y = x w^T with numbers that TF32 does not hold.
Found product_of(F32Products f32, DType dtype) {
    constexpr std::int64_t rows = 24;
    constexpr std::int64_t columns = 40;
    constexpr std::int64_t inner = 96;
    CudaBench bench(1, f32);
    Mirrors mirrors(bench);
    std::mt19937 random(7);
    const auto filled = [&](std::int64_t count) {
        std::vector<double> values;
        for (std::int64_t i = 0; i < count * inner; ++i)
            values.push_back(std::uniform_real_distribution<double>(-1.0, 1.0)(random));
        return mirrors.filled(Shape{count, inner}, dtype, values);
    };
    const Mirror x = filled(rows);
    const Mirror w = filled(columns);
    const Mirror y = mirrors.make(Shape{rows, columns}, dtype);
    MatmulOps& matmul = bench.ops().matmul;
    const Buffer scratch = bench.device().allocate(
        matmul.scratch_bytes(MatmulKind::Forward, rows, columns, inner, dtype), Memory::Device, "scratch");
    matmul.forward(bench.stream(), y.device, x.device, w.device, {},
                   scratch.view(Shape{static_cast<std::int64_t>(scratch.bytes())}, DType::U8));
    mirrors.down(y);
    Found found;
    for (std::int64_t i = 0; i < rows; ++i) {
        for (std::int64_t j = 0; j < columns; ++j) {
            double wanted = 0.0;
            double magnitude = 0.0;
            for (std::int64_t k = 0; k < inner; ++k) {
                const double term = element(x.host, i * inner + k) * element(w.host, j * inner + k);
                wanted += term;
                magnitude += std::abs(term);
            }
            const double value = element(y.host, i * columns + j);
            found.values.push_back(static_cast<float>(value));
            found.worst = std::max(found.worst, std::abs(value - wanted) / magnitude);
        }
    }
    return found;
}

}  // namespace

TEST_CASE("cuda: F32 products are exact, or rounded to TF32 as asked", "[cuda]") {
    const Found exact = product_of(F32Products::Exact, DType::F32);
    const Found rounded = product_of(F32Products::Tf32, DType::F32);
    CHECK(exact.worst < 1e-6);
    CHECK(exact.values != rounded.values);
    CHECK(rounded.worst > 1e-6);
    CHECK(rounded.worst < 0x1p-9);  // two operands with 10 bits of mantissa each
    // Other types have nothing to round.
    CHECK(product_of(F32Products::Exact, DType::BF16).values ==
          product_of(F32Products::Tf32, DType::BF16).values);
}

}  // namespace trainctl::cuda_test
