// JSON strings and numbers written by hand where a JSON library would be too heavy: metrics lines, headers.
#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>

#include "trainctl/base/text.h"

namespace trainctl {
namespace {

// Length of the well-formed UTF-8 sequence at the front (RFC 3629: no overlong forms, no surrogates, at most
// U+10FFFF), or 0 if there is none.
std::size_t utf8_length(std::string_view text) {
    const auto byte = [&](std::size_t i) {
        return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
    };
    const auto tail = [&](std::size_t i) { return (byte(i) & 0xC0U) == 0x80U; };
    const unsigned int first = byte(0);
    const unsigned int second = byte(1);
    if (first < 0x80) return 1;
    if (first >= 0xC2 && first <= 0xDF) return tail(1) ? 2 : 0;
    if (first >= 0xE0 && first <= 0xEF) {
        const bool range = (first != 0xE0 || second >= 0xA0) && (first != 0xED || second < 0xA0);
        return range && tail(1) && tail(2) ? 3 : 0;
    }
    if (first >= 0xF0 && first <= 0xF4) {
        const bool range = (first != 0xF0 || second >= 0x90) && (first != 0xF4 || second < 0x90);
        return range && tail(1) && tail(2) && tail(3) ? 4 : 0;
    }
    return 0;
}

}  // namespace

std::string json_quote(std::string_view text) {
    std::string out;
    out.reserve(text.size() + 2);
    out.push_back('"');
    while (!text.empty()) {
        const std::size_t length = utf8_length(text);
        const char c = text.front();
        if (length == 0) {
            out += "\xEF\xBF\xBD";  // U+FFFD
        } else if (length > 1) {
            out += text.substr(0, length);
        } else if (c == '"' || c == '\\') {
            out.push_back('\\');
            out.push_back(c);
        } else if (c == '\n') {
            out += "\\n";
        } else if (c == '\t') {
            out += "\\t";
        } else if (static_cast<unsigned char>(c) < 0x20 || c == '\x7F') {
            out += fmt::format("\\u{:04x}", static_cast<unsigned int>(static_cast<unsigned char>(c)));
        } else {
            out.push_back(c);
        }
        text.remove_prefix(length == 0 ? 1 : length);
    }
    out.push_back('"');
    return out;
}

std::string json_number(double value) {
    if (!std::isfinite(value)) return "null";
    std::array<char, 32> buffer{};
    const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
    return {buffer.data(), end.ptr};
}

}  // namespace trainctl
