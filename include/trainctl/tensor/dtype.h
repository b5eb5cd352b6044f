// Element types and their scalar conversions.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace trainctl {

enum class DType : std::uint8_t { F64, F32, BF16, F16, I64, I32, U32, U16, U8 };

constexpr std::size_t dtype_size(DType dtype) {
    switch (dtype) {
        case DType::F64:
        case DType::I64:
            return 8;
        case DType::F32:
        case DType::I32:
        case DType::U32:
            return 4;
        case DType::BF16:
        case DType::F16:
        case DType::U16:
            return 2;
        case DType::U8:
            return 1;
    }
    return 0;
}

// Bytes of that many elements in memory, packed.
constexpr std::size_t storage_bytes(std::int64_t elements, DType dtype) {
    return static_cast<std::size_t>(elements) * dtype_size(dtype);
}

// "f32", "bf16", ... as in job files and tables.
std::string_view dtype_name(DType dtype);
std::optional<DType> parse_dtype(std::string_view name);

// Storage types: trivially copyable bit patterns; arithmetic happens in float.
struct BFloat16 {
    std::uint16_t bits;
};
struct Float16 {
    std::uint16_t bits;
};

// Exact.
constexpr float to_float(BFloat16 value) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16U);
}

// Rounds to nearest even; NaN stays NaN (quiet), infinities stay.
constexpr BFloat16 to_bfloat16(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return {static_cast<std::uint16_t>((bits >> 16U) | 0x40U)};
    return {static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U)};
}

float to_float(Float16 value);    // exact
Float16 to_float16(float value);  // nearest even; overflow to infinity; subnormals kept

}  // namespace trainctl
