#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "support/catch.h"
#include "trainctl/tensor/dtype.h"
#include "trainctl/tensor/shape.h"
#include "trainctl/tensor/tensor_view.h"

using namespace trainctl;

namespace {

// All values of a 16-bit format next to which a float may lie, found without the conversion under test: the
// nearer of two neighbours, and of two equally near ones the one with an even pattern.
template <class Half>
bool is_nearest_even(float value, Half rounded, float largest, double half_step_above_largest) {
    const auto magnitude = static_cast<double>(std::abs(value));
    const auto pattern = static_cast<std::uint16_t>(rounded.bits & 0x7FFFU);
    const float result = std::abs(to_float(rounded));
    if ((rounded.bits >> 15U) != (std::signbit(value) ? 1U : 0U)) return false;
    if (magnitude >= static_cast<double>(largest) + half_step_above_largest) return std::isinf(result);
    if (std::isinf(result)) return false;
    const double error = std::abs(static_cast<double>(result) - magnitude);
    const auto other_error = [&](std::uint16_t bits) {
        return std::abs(static_cast<double>(to_float(Half{bits})) - magnitude);
    };
    for (const int step : {-1, 1}) {
        const int neighbour = pattern + step;
        if (neighbour < 0) continue;
        const double other = other_error(static_cast<std::uint16_t>(neighbour));
        if (other < error || (other == error && pattern % 2 != 0)) return false;
    }
    return true;
}

// Floats around every boundary of a 16-bit format: each value, the midpoint to the next, and their float
// neighbours.
template <class Half, class Convert>
std::size_t count_wrong(Convert convert, std::uint16_t infinity) {
    const float largest = to_float(Half{static_cast<std::uint16_t>(infinity - 1)});
    const float before = to_float(Half{static_cast<std::uint16_t>(infinity - 2)});
    const double half_step = (static_cast<double>(largest) - static_cast<double>(before)) / 2;
    std::size_t wrong = 0;
    for (std::uint16_t bits = 0; bits < infinity; ++bits) {
        const float value = to_float(Half{bits});
        const auto next = static_cast<float>(
            bits + 1 == infinity ? static_cast<double>(largest) + 2 * half_step
                                 : static_cast<double>(to_float(Half{static_cast<std::uint16_t>(bits + 1)})));
        const float middle = value / 2 + next / 2;
        for (const float start : {value, middle}) {
            for (const float candidate : {std::nextafter(start, 0.0F), start, std::nextafter(start, next)}) {
                for (const float x : {candidate, -candidate}) {
                    if (!is_nearest_even<Half>(x, convert(x), largest, half_step)) ++wrong;
                }
            }
        }
    }
    return wrong;
}

}  // namespace

TEST_CASE("16-bit values survive the way to float and back, bit for bit") {
    std::size_t changed = 0;
    for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
        const auto pattern = static_cast<std::uint16_t>(bits);
        const float bf16 = to_float(BFloat16{pattern});
        if (std::isnan(bf16)) {
            changed += std::isnan(to_float(to_bfloat16(bf16))) ? 0 : 1;
        } else {
            changed += to_bfloat16(bf16).bits == pattern ? 0 : 1;
        }
        const float f16 = to_float(Float16{pattern});
        if (std::isnan(f16)) {
            changed += std::isnan(to_float(to_float16(f16))) ? 0 : 1;
        } else {
            changed += to_float16(f16).bits == pattern ? 0 : 1;
        }
    }
    CHECK(changed == 0);
}

TEST_CASE("conversion to f16 rounds to nearest even everywhere") {
    CHECK(count_wrong<Float16>([](float x) { return to_float16(x); }, 0x7C00U) == 0);
}

TEST_CASE("conversion to bf16 rounds to nearest even everywhere") {
    CHECK(count_wrong<BFloat16>([](float x) { return to_bfloat16(x); }, 0x7F80U) == 0);
}

TEST_CASE("known f16 values and special values") {
    CHECK(to_float16(1.0F).bits == 0x3C00U);
    CHECK(to_float16(-2.0F).bits == 0xC000U);
    CHECK(to_float16(65504.0F).bits == 0x7BFFU);
    CHECK(to_float16(65519.996F).bits == 0x7BFFU);
    CHECK(to_float16(65520.0F).bits == 0x7C00U);
    CHECK(to_float16(0x1.0p-24F).bits == 1);
    CHECK(to_float16(0x1.0p-25F).bits == 0);
    CHECK(to_float16(-0.0F).bits == 0x8000U);
    const float inf = std::numeric_limits<float>::infinity();
    CHECK(to_float16(-inf).bits == 0xFC00U);
    CHECK(to_bfloat16(inf).bits == 0x7F80U);
    CHECK(to_bfloat16(std::numeric_limits<float>::max()).bits == 0x7F80U);
    const auto signalling = std::bit_cast<float>(0x7F800001U);  // payload only in the bits that are cut off
    CHECK(std::isnan(to_float(to_bfloat16(signalling))));
    CHECK(std::isnan(to_float(to_float16(signalling))));
}

TEST_CASE("dtype names and sizes") {
    for (const DType dtype : {DType::F64, DType::F32, DType::BF16, DType::F16, DType::I64, DType::I32,
                              DType::U32, DType::U16, DType::U8}) {
        CHECK(parse_dtype(dtype_name(dtype)) == dtype);
        const std::string name(dtype_name(dtype));
        CHECK(dtype_size(dtype) * 8 == std::stoul(name.substr(name.find_first_of("123468"))));
    }
    CHECK_FALSE(parse_dtype("float32"));
    CHECK_FALSE(parse_dtype(""));
}

TEST_CASE("shapes") {
    CHECK(Shape{}.elements() == 1);
    CHECK(Shape{3, 0, 5}.elements() == 0);
    CHECK(Shape{100000, 100000}.elements() == 10'000'000'000);  // 64 bits
    CHECK(Shape{2, 3} != Shape{2, 3, 1});
    CHECK(to_string(Shape{4, 1024, 768}) == "[4, 1024, 768]");
    CHECK(to_string(Shape{}) == "[]");
    CHECK_THROWS_AS((Shape{1, 2, 3, 4, 5}), Error);
}

TEST_CASE("views address the same elements in any form") {
    std::vector<float> data(24);
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i);
    const TensorView view{reinterpret_cast<std::byte*>(data.data()), {4, 3, 2}, DType::F32};
    CHECK(view.bytes() == 96);
    CHECK_FALSE(view.empty());
    CHECK(TensorView{}.empty());
    CHECK(view.rows(1, 2).shape == Shape{2, 3, 2});
    CHECK(view.rows(1, 2).as<float>()[0] == 6);
    CHECK(view.flat(5, 7).shape == Shape{7});
    CHECK(view.flat(5, 7).as<float>()[6] == 11);
    CHECK(view.reshaped({6, 4}).rows(5, 1).as<float>()[3] == 23);
    CHECK_THROWS_AS(view.reshaped({5, 5}), Error);
}
