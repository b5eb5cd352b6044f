#include "cli/number_option.h"

#include <fmt/format.h>

#include <charconv>
#include <string>

namespace trainctl {

CLI::Validator whole_number(const Bounds& bounds) {
    const auto check = [bounds](std::string& text) -> std::string {
        std::int64_t number = 0;
        const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
        if (error == std::errc::result_out_of_range)
            return fmt::format("expected {}, found {}, which is beyond 64 bits", bounds.text(), text);
        if (error != std::errc{} || rest != text.data() + text.size())
            return fmt::format("expected a whole number, found '{}'", text);
        if (!bounds.contains(static_cast<double>(number)))
            return fmt::format("expected {}, found {}", bounds.text(), number);
        return {};
    };
    return {check, bounds.text()};
}

}  // namespace trainctl
