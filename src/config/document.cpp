#include "config/document.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>

#include "config/document_limits.h"

namespace trainctl {

namespace {

Position position(const toml::source_region& region, const std::string& file_name) {
    return {file_name, region.begin.line, region.begin.column};
}

Problem too_deep(const Position& at) {
    return make_error("too_deep", {}, at, fmt::format("a job file nests at most {} levels", max_toml_depth),
                      "write tables as [name] instead of nesting them; is a bracket missing?");
}

struct TooDeep {
    Position at;
};

Node convert(const toml::node& from, const std::string& file_name, int depth) {
    Node node;
    node.at = position(from.source(), file_name);
    if (depth > max_toml_depth) throw TooDeep{node.at};
    if (const auto* table = from.as_table()) {
        node.type = Node::Type::Table;
        for (const auto& [key, value] : *table) {
            node.members.push_back({std::string{key.str()}, position(key.source(), file_name),
                                    convert(value, file_name, depth + 1)});
        }
        // The library sorts by name; problems read better in the order of the text.
        std::stable_sort(node.members.begin(), node.members.end(), [](const auto& a, const auto& b) {
            return std::pair{a.at.line, a.at.column} < std::pair{b.at.line, b.at.column};
        });
    } else if (const auto* array = from.as_array()) {
        node.type = Node::Type::Array;
        for (const auto& item : *array) node.items.push_back(convert(item, file_name, depth + 1));
    } else if (const auto* flag = from.as_boolean()) {
        node.type = Node::Type::Boolean;
        node.boolean = flag->get();
    } else if (const auto* whole = from.as_integer()) {
        node.type = Node::Type::Integer;
        node.integer = whole->get();
    } else if (const auto* real = from.as_floating_point()) {
        node.type = Node::Type::Real;
        node.real = real->get();
    } else if (const auto* text = from.as_string()) {
        node.type = Node::Type::Text;
        node.text = text->get();
    } else {
        node.type = Node::Type::Time;
    }
    return node;
}

// The parser's words, with what to do about them.
Problem refused_text(const std::string& what, const Position& at) {
    const auto says = [&](std::string_view part) { return what.find(part) != std::string::npos; };
    if (says("redefine"))
        return make_error("duplicate_key", {}, at, what, "the same key or table was given before; keep one");
    if (says("not representable in 64 bits")) return make_error("out_of_range", {}, at, what, integer_range);
    return make_error("syntax", {}, at, what,
                      "this is not TOML; text needs quotes, tables are written [name]");
}

Parsed parse(std::string_view text, const std::string& file_name) {
    Parsed parsed;
    try {
        parsed.root = convert(toml::parse(text, std::string_view{file_name}), file_name, 0);
    } catch (const toml::parse_error& error) {
        parsed.problem = refused_text(std::string{error.description()}, position(error.source(), file_name));
    } catch (const TooDeep& deep) {
        parsed.problem = too_deep(deep.at);
    }
    return parsed;
}

Position position_of(std::string_view text, std::size_t offset, const std::string& file_name) {
    const std::string_view before = text.substr(0, offset);
    const std::size_t line_start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
    return {file_name, std::count(before.begin(), before.end(), '\n') + 1,
            static_cast<std::int64_t>(offset - line_start) + 1};
}

}  // namespace

std::string_view type_text(Node::Type type) {
    switch (type) {
        case Node::Type::Boolean:
            return "a boolean";
        case Node::Type::Integer:
            return "an integer";
        case Node::Type::Real:
            return "a number";
        case Node::Type::Text:
            return "a text";
        case Node::Type::Time:
            return "a date or time";
        case Node::Type::Array:
            return "a list";
        case Node::Type::Table:
            return "a table";
    }
    return "something else";
}

Parsed parse_toml(std::string_view text, const std::string& file_name) {
    if (text.size() > max_toml_bytes) {
        Parsed parsed;
        parsed.problem =
            make_error("too_large", {}, {file_name, 0, 0},
                       fmt::format("a job file has at most {} bytes, found {}", max_toml_bytes, text.size()),
                       "is this the job file? Data are named in it, not written into it");
        return parsed;
    }
    const auto excess = excess_depth(text, max_toml_depth);
    if (!excess) return parse(text, file_name);

    // A bracket that was never closed looks deep as well: an earlier syntax error is the better message.
    const Position at = position_of(text, *excess, file_name);
    Parsed parsed = parse(text.substr(0, *excess), file_name);
    if (!parsed.problem || parsed.problem->at.line >= at.line) parsed.problem = too_deep(at);
    return parsed;
}

}  // namespace trainctl
