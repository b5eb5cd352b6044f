#include "rundir/strict_json.h"

#include <fmt/format.h>

#include <set>

namespace trainctl {
namespace {

using nlohmann::json;

constexpr int max_depth = 16;  // ours need five; nlohmann itself has no limit

}  // namespace

json parse_strict_json(std::string_view text, const std::string& where) {
    std::vector<std::set<std::string>> keys;  // of the objects that are open
    const auto inspect = [&](int depth, json::parse_event_t event, json& parsed) {
        switch (event) {
            case json::parse_event_t::object_start:
                keys.emplace_back();
                [[fallthrough]];
            case json::parse_event_t::array_start:
                if (depth >= max_depth) {
                    fail(Exit::BadInput,
                         fmt::format("{}: JSON nested deeper than {} levels", where, max_depth));
                }
                break;
            case json::parse_event_t::object_end:
                keys.pop_back();
                break;
            case json::parse_event_t::key:
                if (!keys.back().insert(parsed.get<std::string>()).second) {
                    fail(Exit::BadInput, fmt::format("{}: key \"{}\" appears twice in one object", where,
                                                     parsed.get<std::string>()));
                }
                break;
            default:
                break;
        }
        return true;
    };
    try {
        return json::parse(text.begin(), text.end(), inspect);
    } catch (const json::exception& error) {
        fail(Exit::BadInput, fmt::format("{}: not valid JSON ({})", where, error.what()));
    }
}

JsonObject::JsonObject(const json& value, std::string where) : value_(value), where_(std::move(where)) {
    if (!value.is_object()) fail(Exit::BadInput, where_ + ": expected a JSON object");
}

void JsonObject::refuse(const char* key, const std::string& expected) const {
    const std::string found = value_.contains(key)
                                  ? value_.at(key).dump(-1, ' ', false, json::error_handler_t::replace)
                                  : std::string("nothing");
    fail(Exit::BadInput, fmt::format("{}: field '{}' must be {}, found {}", where_, key, expected,
                                     found.size() > 80 ? found.substr(0, 80) + "..." : found));
}

const json& JsonObject::member(const char* key) const {
    const auto found = value_.find(key);
    if (found == value_.end()) fail(Exit::BadInput, fmt::format("{}: field '{}' is missing", where_, key));
    return *found;
}

std::string JsonObject::text(const char* key) const {
    const json& value = member(key);
    if (!value.is_string()) refuse(key, "a string");
    return value.get<std::string>();
}

std::int64_t JsonObject::integer(const char* key, std::int64_t minimum, std::int64_t maximum) const {
    const json& value = member(key);
    const bool fits =
        value.is_number_integer() &&
        !(value.is_number_unsigned() && value.get<std::uint64_t>() > std::uint64_t{INT64_MAX}) &&
        value.get<std::int64_t>() >= minimum && value.get<std::int64_t>() <= maximum;
    if (!fits) refuse(key, fmt::format("a whole number from {} to {}", minimum, maximum));
    return value.get<std::int64_t>();
}

void JsonObject::require_format(const std::string& format, std::int64_t newest) const {
    if (text("format") != format) refuse("format", format);
    if (integer("version", 1, INT64_MAX) > newest)
        refuse("version", fmt::format("at most {}: a newer trainctl wrote it", newest));
}

std::uint64_t JsonObject::unsigned_integer(const char* key) const {
    const json& value = member(key);
    if (!value.is_number_unsigned()) refuse(key, "a whole number from 0");
    return value.get<std::uint64_t>();
}

std::uint64_t JsonObject::hex(const char* key, std::size_t digits) const {
    const auto value = parse_hex(text(key), digits);
    if (!value) refuse(key, fmt::format("{} hexadecimal digits", digits));
    return *value;
}

bool JsonObject::boolean(const char* key) const {
    const json& value = member(key);
    if (!value.is_boolean()) refuse(key, "true or false");
    return value.get<bool>();
}

const json& JsonObject::array(const char* key) const {
    const json& value = member(key);
    if (!value.is_array()) refuse(key, "an array");
    return value;
}

const json& JsonObject::object(const char* key) const {
    const json& value = member(key);
    if (!value.is_object()) refuse(key, "an object");
    return value;
}

std::vector<std::int64_t> JsonObject::integers(const char* key) const {
    std::vector<std::int64_t> numbers;
    for (const json& value : array(key)) {
        const bool fits =
            value.is_number_integer() &&
            !(value.is_number_unsigned() && value.get<std::uint64_t>() > std::uint64_t{INT64_MAX});
        if (!fits) refuse(key, "an array of whole numbers");
        numbers.push_back(value.get<std::int64_t>());
    }
    return numbers;
}

std::optional<std::uint64_t> parse_hex(std::string_view text, std::size_t digits) {
    if (text.size() != digits || digits > 16) return std::nullopt;
    std::uint64_t value = 0;
    for (const char c : text) {
        if (c >= '0' && c <= '9') {
            value = value * 16 + static_cast<std::uint64_t>(c - '0');
        } else if (c >= 'a' && c <= 'f') {
            value = value * 16 + static_cast<std::uint64_t>(c - 'a' + 10);
        } else {
            return std::nullopt;
        }
    }
    return value;
}

}  // namespace trainctl
