#include "trainctl/config/port_range.h"

#include <charconv>

namespace trainctl {

namespace {

constexpr int lowest = 1024;  // those below belong to the system
constexpr int highest = 65535;

std::optional<int> parse_port(std::string_view text) {
    int port = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
    if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
    if (port < lowest || port > highest) return std::nullopt;
    return port;
}

}  // namespace

std::optional<PortRange> parse_port_range(std::string_view text) {
    const std::size_t dash = text.find('-');
    if (dash == std::string_view::npos) return std::nullopt;
    const auto first = parse_port(text.substr(0, dash));
    const auto last = parse_port(text.substr(dash + 1));
    if (!first || !last || *first > *last) return std::nullopt;
    return PortRange{*first, *last};
}

}  // namespace trainctl
