#include "config/value_text.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "trainctl/base/error.h"

namespace trainctl {

std::string toml_quote(std::string_view text) {
    std::string quoted = "\"";
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\') {
            quoted += '\\';
            quoted += c;
        } else if (c == '\n') {
            quoted += "\\n";
        } else if (c == '\t') {
            quoted += "\\t";
        } else if (byte < 0x20 || byte == 0x7F) {
            quoted += fmt::format("\\u{:04X}", byte);
        } else {
            quoted += c;
        }
    }
    return quoted + '"';
}

std::string toml_float(double value) {
    std::string text = fmt::format("{}", value);
    if (text.find_first_of(".en") == std::string::npos) text += ".0";
    return text;
}

std::string toml_duration(double seconds) {
    // Beyond 2^53 not every whole number of seconds exists; nobody waits that long, but the text must stay
    // exact.
    if (seconds < 1 || seconds > 9e15 || seconds != std::floor(seconds)) return toml_float(seconds);
    struct Unit {
        std::int64_t seconds;
        char letter;
    };
    constexpr std::array<Unit, 4> units{{{86400, 'd'}, {3600, 'h'}, {60, 'm'}, {1, 's'}}};
    auto rest = static_cast<std::int64_t>(seconds);
    std::string text;
    for (const Unit& unit : units) {
        if (rest >= unit.seconds) text += fmt::format("{}{}", rest / unit.seconds, unit.letter);
        rest %= unit.seconds;
    }
    return toml_quote(text);
}

namespace {

std::string toml_sources(const std::vector<DataSource>& sources) {
    std::string text;
    for (const DataSource& source : sources) {
        text += text.empty() ? "[" : ", ";
        text += source.weight == 1.0 ? toml_quote(source.path)
                                     : fmt::format("{{ path = {}, weight = {} }}", toml_quote(source.path),
                                                   toml_float(source.weight));
    }
    return text.empty() ? "[]" : text + "]";
}

std::string toml_texts(const std::vector<std::string>& texts) {
    std::string text;
    for (const std::string& each : texts) text += (text.empty() ? "[" : ", ") + toml_quote(each);
    return text.empty() ? "[]" : text + "]";
}

}  // namespace

std::string toml_value(const Key& key, const Value& value) {
    if (std::holds_alternative<std::monostate>(value)) {
        invariant(key.absent == Absent::Auto, "only \"auto\" keys have a text for an absent value");
        return "\"auto\"";
    }
    if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
    if (const auto* whole = std::get_if<std::int64_t>(&value)) return fmt::format("{}", *whole);
    if (const auto* real = std::get_if<double>(&value))
        return key.kind == Kind::Duration ? toml_duration(*real) : toml_float(*real);
    if (const auto* text = std::get_if<std::string>(&value)) return toml_quote(*text);
    if (const auto* texts = std::get_if<std::vector<std::string>>(&value)) return toml_texts(*texts);
    return toml_sources(std::get<std::vector<DataSource>>(value));
}

}  // namespace trainctl
