#include "config/document_limits.h"

namespace trainctl {

namespace {

// Offset after the string that starts at `begin` (a quote of either kind, single or tripled).
std::size_t after_string(std::string_view text, std::size_t begin) {
    const char quote = text[begin];
    const bool escapes = quote == '"';
    const std::string_view triple = escapes ? "\"\"\"" : "'''";
    const bool multi_line = text.substr(begin, 3) == triple;
    std::size_t at = begin + (multi_line ? 3 : 1);
    while (at < text.size()) {
        if (escapes && text[at] == '\\') {
            at += 2;
        } else if (multi_line && text.substr(at, 3) == triple) {
            return at + 3;
        } else if (!multi_line && (text[at] == quote || text[at] == '\n')) {
            return at + 1;
        } else {
            ++at;
        }
    }
    return text.size();
}

}  // namespace

std::optional<std::size_t> excess_depth(std::string_view text, int limit) {
    int depth = 0;
    int dots = 0;  // in the key being read; an upper bound, since numbers have dots as well
    std::size_t at = 0;
    while (at < text.size()) {
        switch (text[at]) {
            case '"':
            case '\'':
                at = after_string(text, at);
                continue;
            case '#':
                while (at < text.size() && text[at] != '\n') ++at;
                continue;
            case '[':
            case '{':
                dots = 0;
                if (++depth > limit) return at;
                break;
            case ']':
            case '}':
                dots = 0;
                if (depth > 0) --depth;
                break;
            case '=':
            case ',':
            case '\n':
                dots = 0;
                break;
            case '.':
                if (++dots >= limit) return at;
                break;
            default:
                break;
        }
        ++at;
    }
    return std::nullopt;
}

}  // namespace trainctl
