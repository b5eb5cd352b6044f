#include "trainctl/tensor/dtype.h"

#include <array>

namespace trainctl {
namespace {

struct Name {
    DType dtype;
    std::string_view name;
};

constexpr std::array<Name, 9> names{{{DType::F64, "f64"},
                                     {DType::F32, "f32"},
                                     {DType::BF16, "bf16"},
                                     {DType::F16, "f16"},
                                     {DType::I64, "i64"},
                                     {DType::I32, "i32"},
                                     {DType::U32, "u32"},
                                     {DType::U16, "u16"},
                                     {DType::U8, "u8"}}};

}  // namespace

std::string_view dtype_name(DType dtype) {
    for (const Name& entry : names) {
        if (entry.dtype == dtype) return entry.name;
    }
    return "unknown";
}

std::optional<DType> parse_dtype(std::string_view name) {
    for (const Name& entry : names) {
        if (entry.name == name) return entry.dtype;
    }
    return std::nullopt;
}

float to_float(Float16 value) {
    const std::uint32_t sign = (value.bits & 0x8000U) << 16U;
    const std::uint32_t exponent = (value.bits >> 10U) & 0x1FU;
    const std::uint32_t fraction = value.bits & 0x3FFU;
    if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000U | (fraction << 13U));
    if (exponent == 0) {  // zero and subnormals: fraction * 2^-24, exact in float
        const float magnitude = static_cast<float>(fraction) * 0x1.0p-24F;
        return sign != 0 ? -magnitude : magnitude;
    }
    return std::bit_cast<float>(sign | ((exponent + 112U) << 23U) | (fraction << 13U));
}

Float16 to_float16(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const auto sign = static_cast<std::uint16_t>((bits >> 16U) & 0x8000U);
    const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
    const auto with_sign = [sign](std::uint32_t rest) {
        return Float16{static_cast<std::uint16_t>(sign | rest)};
    };
    if (magnitude > 0x7F800000U)
        return with_sign(0x7E00U | ((magnitude >> 13U) & 0x3FFU));  // NaN, made quiet
    if (magnitude >= 0x477FF000U) return with_sign(0x7C00U);        // 65520 and above round to infinity
    if (magnitude >= 0x38800000U) {                                 // normal range, from 2^-14 up
        const std::uint32_t rounded = magnitude + 0xFFFU + ((magnitude >> 13U) & 1U);
        return with_sign((rounded - (112U << 23U)) >> 13U);
    }
    if (magnitude <= 0x33000000U)
        return with_sign(0);  // at most 2^-25: half of the smallest, ties go to even 0
    // Subnormal: the significand shifted so that one unit is 2^-24. A carry to 0x400 is the first normal:
    // right.
    const std::uint32_t significand = (magnitude & 0x7FFFFFU) | 0x800000U;
    const std::uint32_t shift = 126U - (magnitude >> 23U);
    const std::uint32_t half = 1U << (shift - 1U);
    return with_sign((significand + half - 1U + ((significand >> shift) & 1U)) >> shift);
}

}  // namespace trainctl
