#include "config/assignment.h"

#include <fmt/format.h>

#include <algorithm>

namespace trainctl {

namespace {

bool is_key_character(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
}

std::string trimmed(const std::string& text) {
    const std::size_t begin = text.find_first_not_of(" \t");
    if (begin == std::string::npos) return {};
    return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

void move_to(Node& node, const Position& at) {
    node.at = at;
    for (Node& item : node.items) move_to(item, at);
    for (Node::Member& member : node.members) {
        member.at = at;
        move_to(member.value, at);
    }
}

// The value of a one-key document, if the text is exactly one TOML value.
std::optional<Node> toml_value_of(const std::string& text) {
    Parsed parsed = parse_toml("v = " + text, "--set");
    if (parsed.problem || parsed.root.members.size() != 1) return std::nullopt;
    return std::move(parsed.root.members.front().value);
}

}  // namespace

Assignment parse_assignment(const std::string& text, const std::function<bool(const std::string&)>& is_text) {
    const Position at{"--set " + text, 0, 0};
    Assignment result;
    const std::size_t equals = text.find('=');
    result.name = trimmed(text.substr(0, equals));
    const bool well_formed = equals != std::string::npos && !result.name.empty() &&
                             std::all_of(result.name.begin(), result.name.end(), is_key_character);
    if (!well_formed) {
        result.problem = make_error("syntax", {}, at, "--set expects section.key=value",
                                    "for example --set training.micro_batch_size=4");
        return result;
    }
    const std::string right = trimmed(text.substr(equals + 1));
    std::optional<Node> value = toml_value_of(right);
    if (!value || (value->type != Node::Type::Text && is_text(result.name))) {
        value = Node{};
        value->type = Node::Type::Text;
        value->text = right;
    }
    move_to(*value, at);
    result.value = std::move(*value);
    return result;
}

}  // namespace trainctl
