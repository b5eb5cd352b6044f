#include "trainctl/config/key.h"

#include <fmt/format.h>

#include <string_view>

#include "config/value_text.h"

namespace trainctl {

bool Bounds::contains(double value) const {
    const bool open_low = ends == Ends::OpenLow || ends == Ends::Open;
    const bool open_high = ends == Ends::OpenHigh || ends == Ends::Open;
    return (open_low ? value > low : value >= low) && (open_high ? value < high : value <= high);
}

std::string Bounds::text() const {
    const bool has_low = low != -std::numeric_limits<double>::infinity();
    const bool has_high = high != std::numeric_limits<double>::infinity();
    const bool open_low = ends == Ends::OpenLow || ends == Ends::Open;
    const bool open_high = ends == Ends::OpenHigh || ends == Ends::Open;
    if (has_low && has_high && ends == Ends::Closed) return fmt::format("between {} and {}", low, high);
    std::string text;
    if (has_low) text = fmt::format("{} {}", open_low ? "greater than" : "at least", low);
    if (has_high)
        text += fmt::format("{}{} {}", has_low ? " and " : "", open_high ? "less than" : "at most", high);
    return text;
}

std::string Key::section() const {
    const std::size_t dot = name.rfind('.');
    return dot == std::string::npos ? std::string{} : name.substr(0, dot);
}

std::string Key::leaf() const {
    const std::size_t dot = name.rfind('.');
    return dot == std::string::npos ? name : name.substr(dot + 1);
}

Value Key::current(const JobSpec& spec) const {
    if (!binding) return fallback;
    Value value = binding->read(spec);
    if (absent == Absent::Never) return value;
    const auto is_zero = [](const auto& held) {
        using T = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<T, std::monostate>) {
            return true;
        } else if constexpr (std::is_arithmetic_v<T>) {
            return held == T{};
        } else {
            return held.empty();
        }
    };
    return std::visit(is_zero, value) && kind != Kind::Boolean ? Value{} : value;
}

std::string kind_text(const Key& key) {
    std::string text;
    switch (key.kind) {
        case Kind::Boolean:
            text = "true or false";
            break;
        case Kind::Integer:
            text = "integer";
            break;
        case Kind::Number:
            text = "number";
            break;
        case Kind::Text:
            text = "text";
            break;
        case Kind::Duration:
            text = "duration (\"90s\", \"30m\", \"1h30m\", \"2d\", or seconds)";
            break;
        case Kind::Sources:
            text = "list of paths, or of { path = \"...\", weight = 1.0 }";
            break;
        case Kind::TextList:
            text = "list of texts";
            break;
        case Kind::Table:
            text = "table";
            break;
        case Kind::TableList:
            text = "list of tables";
            break;
        case Kind::Choice:
            for (const Choice& choice : key.choices)
                text += fmt::format("{}\"{}\"", text.empty() ? "one of " : ", ", choice.text);
            break;
    }
    if (key.absent == Absent::Auto && key.kind != Kind::Choice) text += ", or \"auto\"";
    return text;
}

std::string expected_text(const Key& key) {
    std::string kind = kind_text(key);
    switch (key.kind) {
        case Kind::Boolean:
        case Kind::Choice:
            return kind;
        case Kind::Integer:
            return "an " + kind;
        default:
            return "a " + kind;
    }
}

std::string default_text(const Key& key) {
    if (!key.derived.empty() && key.absent != Absent::Auto) return "derived: " + key.derived;
    if (!std::holds_alternative<std::monostate>(key.fallback)) return toml_value(key, key.fallback);
    switch (key.absent) {
        case Absent::Auto:
            return "\"auto\"" + (key.derived.empty() ? std::string{} : ": " + key.derived);
        case Absent::Derived:
            return "derived";
        case Absent::Required:
            return "required";
        case Absent::Never:
        case Absent::Optional:
            break;
    }
    return "off";
}

std::string_view resume_name(ResumeClass resume) {
    switch (resume) {
        case ResumeClass::Free:
            return "free";
        case ResumeClass::Warn:
            return "warn";
        case ResumeClass::Refuse:
            return "refuse";
    }
    return "refuse";
}

}  // namespace trainctl
