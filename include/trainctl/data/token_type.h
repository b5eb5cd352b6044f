// Storage types of token ids on disk. Wider than DType: Megatron also knows signed small integers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace trainctl {

enum class TokenType : std::uint8_t { U8, I8, U16, I16, U32, I32, I64 };

constexpr std::size_t token_bytes(TokenType type) {
    switch (type) {
        case TokenType::U8:
        case TokenType::I8:
            return 1;
        case TokenType::U16:
        case TokenType::I16:
            return 2;
        case TokenType::U32:
        case TokenType::I32:
            return 4;
        case TokenType::I64:
            return 8;
    }
    return 0;
}

// Largest id that the type can hold.
constexpr std::int64_t largest_id(TokenType type) {
    switch (type) {
        case TokenType::U8:
            return 0xFF;
        case TokenType::I8:
            return 0x7F;
        case TokenType::U16:
            return 0xFFFF;
        case TokenType::I16:
            return 0x7FFF;
        case TokenType::U32:
            return 0xFFFFFFFF;
        case TokenType::I32:
            return 0x7FFFFFFF;
        case TokenType::I64:
            return INT64_MAX;
    }
    return 0;
}

constexpr std::string_view token_type_name(TokenType type) {
    switch (type) {
        case TokenType::U8:
            return "uint8";
        case TokenType::I8:
            return "int8";
        case TokenType::U16:
            return "uint16";
        case TokenType::I16:
            return "int16";
        case TokenType::U32:
            return "uint32";
        case TokenType::I32:
            return "int32";
        case TokenType::I64:
            return "int64";
    }
    return "?";
}

}  // namespace trainctl
