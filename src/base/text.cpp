#include "trainctl/base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

namespace trainctl {
namespace {

// Optimal string alignment: insert, delete, replace, and swap of two neighbours cost 1 each.
std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> before_last(b.size() + 1);
    std::vector<std::size_t> last(b.size() + 1);
    std::vector<std::size_t> row(b.size() + 1);
    for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
    for (std::size_t i = 1; i <= a.size(); ++i) {
        std::swap(before_last, last);
        std::swap(last, row);
        row[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t replace = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
            row[j] = std::min({replace, last[j] + 1, row[j - 1] + 1});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                row[j] = std::min(row[j], before_last[j - 2] + 1);
            }
        }
    }
    return row[b.size()];
}

struct Unit {
    std::string_view name;
    std::uint64_t factor;
};

constexpr char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool equal_ignoring_case(std::string_view a, std::string_view b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](char x, char y) { return lower(x) == lower(y); });
}

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

std::optional<std::string> nearest_name(std::string_view name, std::span<const std::string> candidates) {
    std::optional<std::string> best;
    std::size_t best_distance = std::max<std::size_t>(1, name.size() / 3) + 1;
    for (const std::string& candidate : candidates) {
        const std::size_t distance = edit_distance(name, candidate);
        if (distance < best_distance) {
            best_distance = distance;
            best = candidate;
        }
    }
    return best;
}

std::string format_bytes(std::uint64_t bytes) {
    if (bytes < 1024) return fmt::format("{} B", bytes);
    constexpr std::array<std::string_view, 6> units{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = static_cast<double>(bytes) / 1024;
    std::size_t unit = 0;
    while (value >= 1023.995 &&
           unit + 1 < units.size()) {  // what would print as 1024.00 belongs to the next unit
        value /= 1024;
        ++unit;
    }
    return fmt::format("{:.2f} {}", value, units[unit]);
}

std::string format_count(double count) {
    if (!std::isfinite(count)) return fmt::format("{}", count);
    if (std::abs(count) < 1000)
        return count == std::floor(count) ? fmt::format("{}", count) : fmt::format("{:.4g}", count);
    constexpr std::array<std::string_view, 5> units{"K", "M", "B", "T", "Q"};
    double value = count / 1000;
    std::size_t unit = 0;
    while (std::abs(value) >= 999.995 && unit + 1 < units.size()) {
        value /= 1000;
        ++unit;
    }
    return fmt::format("{:.2f}{}", value, units[unit]);
}

std::string format_duration(double seconds) {
    if (!std::isfinite(seconds)) return "unknown";
    if (seconds < 0) return "-" + format_duration(-seconds);
    if (seconds < 59.95) return fmt::format("{:.1f}s", seconds);
    if (seconds > 1e15) return fmt::format("{:.3g}s", seconds);
    const auto whole = static_cast<std::uint64_t>(std::llround(seconds));
    const std::uint64_t days = whole / 86400;
    const std::uint64_t hours = whole / 3600 % 24;
    const std::uint64_t minutes = whole / 60 % 60;
    if (days > 0) return fmt::format("{}d{}h{}m", days, hours, minutes);
    if (hours > 0) return fmt::format("{}h{}m{}s", hours, minutes, whole % 60);
    return fmt::format("{}m{}s", minutes, whole % 60);
}

std::string format_seconds(double seconds) {
    const double size = std::abs(seconds);
    if (size != 0 && size < 0.9999995e-3) return fmt::format("{:.4g} us", 1e6 * seconds);
    if (size != 0 && size < 0.99995) return fmt::format("{:.4g} ms", 1e3 * seconds);
    return fmt::format("{:.4g} s", seconds);
}

std::optional<std::uint64_t> parse_bytes(std::string_view text) {
    constexpr std::uint64_t kibi = 1024;
    constexpr std::uint64_t kilo = 1000;
    constexpr std::array<Unit, 14> units{{{"", 1},
                                          {"B", 1},
                                          {"K", kibi},
                                          {"KiB", kibi},
                                          {"KB", kilo},
                                          {"M", kibi * kibi},
                                          {"MiB", kibi * kibi},
                                          {"MB", kilo * kilo},
                                          {"G", kibi * kibi * kibi},
                                          {"GiB", kibi * kibi * kibi},
                                          {"GB", kilo * kilo * kilo},
                                          {"T", kibi * kibi * kibi * kibi},
                                          {"TiB", kibi * kibi * kibi * kibi},
                                          {"TB", kilo * kilo * kilo * kilo}}};
    std::uint64_t number = 0;
    const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc{}) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(rest - text.data()));
    if (text.size() > 1 && text.front() == ' ') text.remove_prefix(1);
    for (const Unit& unit : units) {
        if (!equal_ignoring_case(text, unit.name)) continue;
        if (number > std::numeric_limits<std::uint64_t>::max() / unit.factor) return std::nullopt;
        return number * unit.factor;
    }
    return std::nullopt;
}

std::optional<double> parse_duration_s(std::string_view text) {
    constexpr std::array<Unit, 4> units{{{"d", 86400}, {"h", 3600}, {"m", 60}, {"s", 1}}};
    if (text.empty()) return std::nullopt;
    double total = 0;
    std::size_t next_unit = 0;  // units must fall: "1h30m", never "30m1h" or "1m2m"
    bool first = true;
    while (!text.empty()) {
        if (!is_digit(text.front())) return std::nullopt;  // from_chars would accept "-1", "inf" and "nan"
        double number = 0;
        const auto [rest, error] =
            std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
        if (error != std::errc{}) return std::nullopt;
        text.remove_prefix(static_cast<std::size_t>(rest - text.data()));
        if (text.empty() && first) return number;  // plain digits are seconds
        const auto* const unit =
            std::find_if(units.begin() + next_unit, units.end(), [&](const Unit& candidate) {
                return !text.empty() && lower(text.front()) == candidate.name.front();
            });
        if (unit == units.end()) return std::nullopt;
        next_unit = static_cast<std::size_t>(unit - units.begin()) + 1;
        total += number * static_cast<double>(unit->factor);
        text.remove_prefix(1);
        first = false;
    }
    if (!std::isfinite(total)) return std::nullopt;
    return total;
}

}  // namespace trainctl
