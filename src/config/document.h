// A parsed TOML document in neutral form, so that only one source file sees the parser library.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trainctl/config/problem.h"

namespace trainctl {

struct Node {
    enum class Type { Boolean, Integer, Real, Text, Time, Array, Table };
    struct Member;

    Type type = Type::Table;
    bool boolean = false;
    std::int64_t integer = 0;
    double real = 0.0;
    std::string text;
    std::vector<Node> items;      // Array
    std::vector<Member> members;  // Table, in the order of the text
    Position at;                  // of the value
};

struct Node::Member {
    std::string key;
    Position at;  // of the key
    Node value;
};

// What an integer of a job file may be; a hint.
inline constexpr const char* integer_range = "an integer has at most 64 bits: up to 9223372036854775807";

// "an integer", "a list", ...
std::string_view type_text(Node::Type type);

struct Parsed {
    Node root;
    std::optional<Problem> problem;  // then root is meaningless
};

// Limits: 1 MiB, nesting depth 32 (arrays, inline tables and dotted keys together). Never throws on bad text.
Parsed parse_toml(std::string_view text, const std::string& file_name);

constexpr std::size_t max_toml_bytes = std::size_t{1} << 20U;
constexpr int max_toml_depth = 32;

}  // namespace trainctl
