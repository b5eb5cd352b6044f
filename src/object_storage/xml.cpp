#include "object_storage/xml.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "trainctl/base/error.h"

namespace trainctl {
namespace {

constexpr std::size_t longest_name = 128;
constexpr std::size_t longest_entity = 10;

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

bool is_name_begin(char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_'; }

bool is_name_character(char c) {
    return is_name_begin(c) || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == ':';
}

bool is_character(char c) { return static_cast<unsigned char>(c) >= 0x20 || is_space(c); }

void append_utf8(std::string& text, std::uint32_t code) {
    const auto put = [&text](std::uint32_t byte) { text += static_cast<char>(byte); };
    if (code < 0x80) {
        put(code);
    } else if (code < 0x800) {
        put(0xC0U | (code >> 6U));
        put(0x80U | (code & 0x3FU));
    } else if (code < 0x10000) {
        put(0xE0U | (code >> 12U));
        put(0x80U | ((code >> 6U) & 0x3FU));
        put(0x80U | (code & 0x3FU));
    } else {
        put(0xF0U | (code >> 18U));
        put(0x80U | ((code >> 12U) & 0x3FU));
        put(0x80U | ((code >> 6U) & 0x3FU));
        put(0x80U | (code & 0x3FU));
    }
}

class XmlReader {
  public:
    XmlReader(std::string_view text, const XmlLimits& limits) : text_(text), limits_(limits) {}

    XmlElement document() {
        if (text_.size() > limits_.bytes) wrong(fmt::format("at most {} bytes", limits_.bytes));
        skip_space();  // stores send spaces while an answer takes long
        if (accept("<?xml")) {
            const std::size_t end = text_.find("?>", at_);
            if (end == std::string_view::npos) wrong("\"?>\"");
            at_ = end + 2;
            skip_space();
        }
        XmlElement root = element(1);
        skip_space();
        if (at_ != text_.size()) wrong("the end");
        return root;
    }

  private:
    [[noreturn]] void wrong(const std::string& expected) const {
        fail(Exit::BadInput,
             fmt::format("malformed XML: expected {} at byte {} of {}", expected, at_, text_.size()));
    }
    [[nodiscard]] char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
    bool accept(std::string_view token) {
        if (!text_.substr(at_).starts_with(token)) return false;
        at_ += token.size();
        return true;
    }
    void require(std::string_view token) {
        if (!accept(token)) wrong(fmt::format("\"{}\"", token));
    }
    void skip_space() {
        while (at_ < text_.size() && is_space(text_[at_])) ++at_;
    }
    std::string_view name() {
        if (!is_name_begin(peek())) wrong("a name");
        const std::size_t begin = at_;
        while (at_ < text_.size() && is_name_character(text_[at_])) ++at_;
        if (at_ - begin > longest_name) wrong("a shorter name");
        return text_.substr(begin, at_ - begin);
    }

    XmlElement element(int depth) {
        if (depth > limits_.depth) wrong(fmt::format("at most {} levels", limits_.depth));
        if (++elements_ > limits_.elements) wrong(fmt::format("at most {} elements", limits_.elements));
        XmlElement made;
        require("<");
        made.name = name();
        if (attributes()) return made;
        while (true) {
            if (accept("</")) {
                if (name() != made.name) wrong(fmt::format("the end of <{}>", made.name));
                skip_space();
                require(">");
                return made;
            }
            if (peek() == '<') {
                made.children.push_back(element(depth + 1));
            } else {
                character(made.text);
            }
        }
    }

    // Up to the end of the tag. True: it was an empty element.
    bool attributes() {
        while (true) {
            const std::size_t before = at_;
            skip_space();
            if (accept("/>")) return true;
            if (accept(">")) return false;
            if (before == at_) wrong("a space, \">\" or \"/>\"");
            name();
            skip_space();
            require("=");
            skip_space();
            const char quote = peek();
            if (quote != '"' && quote != '\'') wrong("a quoted value");
            const std::size_t end = text_.find(quote, at_ + 1);
            if (end == std::string_view::npos ||
                text_.substr(at_, end - at_).find('<') != std::string_view::npos)
                wrong("the end of the value");
            at_ = end + 1;
        }
    }

    void character(std::string& into) {
        if (at_ == text_.size() || !is_character(text_[at_])) wrong("a text or a tag");
        if (text_[at_] != '&') {
            into += text_[at_++];
            return;
        }
        const std::size_t end = text_.substr(at_, longest_entity + 2).find(';');
        if (end == std::string_view::npos) wrong("an entity");
        entity(text_.substr(at_ + 1, end - 1), into);
        at_ += end + 1;
    }

    void entity(std::string_view entity_name, std::string& into) const {
        constexpr std::array<std::pair<std::string_view, char>, 5> known{
            {{"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}}};
        for (const auto& [known_name, character] : known) {
            if (entity_name == known_name) {
                into += character;
                return;
            }
        }
        if (!entity_name.starts_with('#')) wrong("a known entity");
        entity_name.remove_prefix(1);
        const bool hexadecimal = entity_name.starts_with('x');
        if (hexadecimal) entity_name.remove_prefix(1);
        const std::uint32_t base = hexadecimal ? 16 : 10;
        std::uint32_t code = 0;
        for (const char c : entity_name) {
            std::uint32_t digit = base;
            if (c >= '0' && c <= '9') digit = static_cast<std::uint32_t>(c - '0');
            if (c >= 'a' && c <= 'f') digit = static_cast<std::uint32_t>(c - 'a' + 10);
            if (c >= 'A' && c <= 'F') digit = static_cast<std::uint32_t>(c - 'A' + 10);
            if (digit >= base) wrong("digits");
            code = std::min<std::uint32_t>(code * base + digit, 0x110000);
        }
        const bool surrogate = code >= 0xD800 && code < 0xE000;
        if (entity_name.empty() || code == 0 || code > 0x10FFFF || surrogate) wrong("a character's number");
        append_utf8(into, code);
    }

    std::string_view text_;
    XmlLimits limits_;
    std::size_t at_ = 0;
    std::size_t elements_ = 0;
};

}  // namespace

std::string_view XmlElement::text_of(std::string_view child) const {
    for (const XmlElement& candidate : children) {
        if (candidate.name == child) return candidate.text;
    }
    return {};
}

bool XmlElement::has(std::string_view child) const {
    return std::any_of(children.begin(), children.end(),
                       [child](const XmlElement& candidate) { return candidate.name == child; });
}

XmlElement parse_xml(std::string_view text, const XmlLimits& limits) {
    return XmlReader(text, limits).document();
}

std::string xml_escaped(std::string_view text) {
    std::string escaped;
    for (const char c : text) {
        switch (c) {
            case '&':
                escaped += "&amp;";
                break;
            case '<':
                escaped += "&lt;";
                break;
            case '>':
                escaped += "&gt;";
                break;
            case '"':
                escaped += "&quot;";
                break;
            default:
                escaped += c;
        }
    }
    return escaped;
}

}  // namespace trainctl
