#include "config/convert.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "config/value_text.h"
#include "trainctl/base/text.h"

namespace trainctl {

namespace {

using Type = Node::Type;

enum class Reading { NoValue, Value, TooLarge };

// What the text of all of `text` would be as a number of type T.
template <class T>
Reading read_number(const std::string& text) {
    T value{};
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, value);
    if (rest != end || error == std::errc::invalid_argument) return Reading::NoValue;
    return error == std::errc{} ? Reading::Value : Reading::TooLarge;
}

// What the text would be as a value of the key, without quotes.
Reading read_as(const Key& key, const std::string& text) {
    if (key.kind == Kind::Boolean)
        return text == "true" || text == "false" ? Reading::Value : Reading::NoValue;
    if (key.kind == Kind::Integer) return read_number<std::int64_t>(text);
    return key.kind == Kind::Number ? read_number<double>(text) : Reading::NoValue;
}

Converted mismatch(const Key& key, const Node& node) {
    Converted result;
    result.at = node.at;
    result.what = fmt::format("{} must be {}, found {}", key.name, expected_text(key), type_text(node.type));
    result.hint = fmt::format("`trainctl config explain {}` tells what it takes", key.name);
    if (node.type == Type::Text) {
        const Reading reading = read_as(key, node.text);
        if (reading == Reading::TooLarge) {  // on the command line it has no quotes
            result.what = fmt::format("{} must be {}, found {}, which does not fit 64 bits", key.name,
                                      expected_text(key), node.text);
            if (key.kind == Kind::Integer) result.hint = integer_range;
            return result;
        }
        result.what += " " + toml_quote(node.text);
        if (reading == Reading::Value) result.hint = fmt::format("write {} without quotes", node.text);
    }
    if (node.type == Type::Real && key.kind == Kind::Integer) {
        result.what += fmt::format(" {}", node.real);
        if (node.real == std::floor(node.real) && std::abs(node.real) < 9e15)
            result.hint = fmt::format("write {}", static_cast<std::int64_t>(node.real));
    }
    if (node.type == Type::Table && key.kind != Kind::Sources)
        result.hint = fmt::format("{} is a key, not a section: write {} = VALUE in [{}]", key.name,
                                  key.leaf(), key.section());
    return result;
}

Converted not_finite(const Key& key, const Node& node) {
    Converted result;
    result.at = node.at;
    result.what = fmt::format("{} must be a finite number, found {}", key.name, node.real);
    result.hint = fmt::format("`trainctl config explain {}` tells its range", key.name);
    return result;
}

Converted found(Value value) {
    Converted result;
    result.value = std::move(value);
    return result;
}

Converted source_problem(const Key& key, const Position& at, const std::string& what) {
    Converted result;
    result.at = at;
    result.what = fmt::format("{}: {}", key.name, what);
    result.hint = "write a path, or { path = \"...\", weight = 1.0 }";
    return result;
}

Converted convert_source(const Key& key, const Node& node, DataSource& source) {
    if (node.type == Type::Text) {
        source.path = node.text;
        return found({});
    }
    if (node.type != Type::Table)
        return source_problem(key, node.at, fmt::format("a source is not {}", type_text(node.type)));
    bool has_path = false;
    for (const Node::Member& member : node.members) {
        const Node& value = member.value;
        if (member.key == "path" && value.type == Type::Text) {
            source.path = value.text;
            has_path = true;
        } else if (member.key == "weight" && value.type == Type::Real) {
            source.weight = value.real;
        } else if (member.key == "weight" && value.type == Type::Integer) {
            source.weight = static_cast<double>(value.integer);
        } else if (member.key == "path" || member.key == "weight") {
            return source_problem(key, value.at,
                                  fmt::format("{} must not be {}", member.key, type_text(value.type)));
        } else {
            return source_problem(
                key, member.at, fmt::format("a source has path and weight, not {}", toml_quote(member.key)));
        }
    }
    if (!has_path) return source_problem(key, node.at, "a source has no path");
    return found({});
}

Converted convert_sources(const Key& key, const Node& node) {
    std::vector<DataSource> sources;
    const auto add = [&](const Node& item) {
        DataSource source;
        Converted result = convert_source(key, item, source);
        sources.push_back(std::move(source));
        return result;
    };
    if (node.type != Type::Array) {
        Converted one = add(node);
        return one.value ? found(std::move(sources)) : one;
    }
    for (const Node& item : node.items) {
        Converted each = add(item);
        if (!each.value) return each;
    }
    return found(std::move(sources));
}

Converted convert_texts(const Key& key, const Node& node) {
    std::vector<std::string> texts;
    if (node.type == Type::Text) return found(std::vector<std::string>{node.text});
    if (node.type != Type::Array) return mismatch(key, node);
    for (const Node& item : node.items) {
        if (item.type != Type::Text) {
            Converted result = mismatch(key, item);
            result.what =
                fmt::format("{} must be a list of texts, found {} in it", key.name, type_text(item.type));
            return result;
        }
        texts.push_back(item.text);
    }
    return found(std::move(texts));
}

Converted convert_duration(const Key& key, const Node& node) {
    if (node.type == Type::Integer) return found(static_cast<double>(node.integer));
    if (node.type == Type::Real) return found(node.real);
    if (node.type != Type::Text) return mismatch(key, node);
    if (const auto seconds = parse_duration_s(node.text)) return found(*seconds);
    return mismatch(key, node);
}

}  // namespace

Converted convert_value(const Key& key, const Node& node) {
    const bool real = node.type == Type::Real && (key.kind == Kind::Number || key.kind == Kind::Duration);
    if (real && !std::isfinite(node.real)) return not_finite(key, node);
    if (key.absent == Absent::Auto && node.type == Type::Text && node.text == "auto") return found({});
    switch (key.kind) {
        case Kind::Boolean:
            if (node.type == Type::Boolean) return found(node.boolean);
            break;
        case Kind::Integer:
            if (node.type == Type::Integer) return found(node.integer);
            break;
        case Kind::Number:
            if (node.type == Type::Integer) return found(static_cast<double>(node.integer));
            if (node.type == Type::Real) return found(node.real);
            break;
        case Kind::Text:
        case Kind::Choice:
            if (node.type == Type::Text) return found(node.text);
            break;
        case Kind::Duration:
            return convert_duration(key, node);
        case Kind::Sources:
            return convert_sources(key, node);
        case Kind::TextList:
            return convert_texts(key, node);
        case Kind::Table:
            if (node.type == Type::Table) return found(node.members.empty() ? key.fallback : Value{"given"});
            break;
        case Kind::TableList:
            if (node.type == Type::Array) return found(node.items.empty() ? key.fallback : Value{"given"});
            break;
    }
    return mismatch(key, node);
}

}  // namespace trainctl
