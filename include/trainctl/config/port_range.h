// launch.port_range as numbers.
#pragma once

#include <optional>
#include <string_view>

namespace trainctl {

// TCP ports first to last, both included.
struct PortRange {
    int first = 0;
    int last = 0;

    [[nodiscard]] int size() const { return last - first + 1; }
};

// "20000-20100"; nullopt unless 1024 <= first <= last <= 65535.
std::optional<PortRange> parse_port_range(std::string_view text);

}  // namespace trainctl
