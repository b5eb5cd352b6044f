// Small text helpers shared by every room that talks to people.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trainctl {

// Nearest of `candidates` by Damerau-Levenshtein distance, if within max(1, length/3); else nullopt.
std::optional<std::string> nearest_name(std::string_view name, std::span<const std::string> candidates);

// "1 rank", "3 ranks"; a plural that is not just an added "s" is given: counted(n, "entry", "entries").
template <std::integral Count>
std::string counted(Count count, std::string_view one, std::string_view many = {}) {
    if (count == 1) return "1 " + std::string(one);
    return std::to_string(count) + " " + (many.empty() ? std::string(one) + "s" : std::string(many));
}

// 1536 -> "1.50 KiB"; exact below 1 KiB ("512 B").
std::string format_bytes(std::uint64_t bytes);
// 1234567 -> "1.23M"; below 1000 whole numbers as they are, others (rates) to four significant digits:
// "37.42".
std::string format_count(double count);
// 125440 -> "1d10h50m"; under a minute with one decimal ("12.3s").
std::string format_duration(double seconds);
// A measured time to four significant digits: "1.067 s", "42.13 ms", "18.04 us".
std::string format_seconds(double seconds);

// "512MiB", "10GiB", "4K" (1024), "1GB" (1e9), plain digits = bytes. nullopt if malformed or overflowing.
std::optional<std::uint64_t> parse_bytes(std::string_view text);
// "30m", "1h30m", "45s", "2d", plain digits = seconds. nullopt if malformed.
std::optional<double> parse_duration_s(std::string_view text);

// JSON string literal with quotes; control characters escaped, invalid UTF-8 replaced by U+FFFD.
std::string json_quote(std::string_view text);
// Shortest decimal that reads back to the same double; "null" for non-finite.
std::string json_number(double value);

}  // namespace trainctl
