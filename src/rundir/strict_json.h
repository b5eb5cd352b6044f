// JSON as our formats want it: no duplicate keys, bounded depth, every problem an Error that says where.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "trainctl/base/error.h"

namespace trainctl {

// `where` names the text in messages. Exit::BadInput on any defect.
nlohmann::json parse_strict_json(std::string_view text, const std::string& where);

// Typed access to the members of one JSON object; a missing member or a wrong type is Exit::BadInput naming
// both the member and the text it is in.
class JsonObject {
  public:
    JsonObject(const nlohmann::json& value, std::string where);

    [[nodiscard]] const nlohmann::json& member(const char* key) const;
    [[nodiscard]] bool has(const char* key) const { return value_.contains(key); }
    [[nodiscard]] std::string text(const char* key) const;
    // A whole number within [minimum, maximum].
    [[nodiscard]] std::int64_t integer(const char* key, std::int64_t minimum, std::int64_t maximum) const;
    // Members "format" and "version" say that the text is a `format` of version 1 to `newest`.
    void require_format(const std::string& format, std::int64_t newest) const;
    [[nodiscard]] std::uint64_t unsigned_integer(const char* key) const;
    // Exactly `digits` hexadecimal digits.
    [[nodiscard]] std::uint64_t hex(const char* key, std::size_t digits) const;
    [[nodiscard]] bool boolean(const char* key) const;
    [[nodiscard]] const nlohmann::json& array(const char* key) const;
    [[nodiscard]] const nlohmann::json& object(const char* key) const;
    [[nodiscard]] std::vector<std::int64_t> integers(const char* key) const;
    [[nodiscard]] const std::string& where() const { return where_; }
    [[noreturn]] void refuse(const char* key, const std::string& expected) const;

  private:
    const nlohmann::json& value_;
    std::string where_;
};

// Exactly `digits` lower-case hexadecimal digits -> value; nullopt otherwise.
std::optional<std::uint64_t> parse_hex(std::string_view text, std::size_t digits);

}  // namespace trainctl
