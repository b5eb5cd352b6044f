// Sizes, durations and JSON strings: any text is either refused or means a finite value, and quoting always
// gives well-formed JSON.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "trainctl/base/text.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    static_cast<void>(trainctl::parse_bytes(text));
    const auto duration = trainctl::parse_duration_s(text);
    if (duration && (!std::isfinite(*duration) || *duration < 0)) std::abort();

    const std::string quoted = trainctl::json_quote(text);
    const auto parsed = nlohmann::json::parse(quoted, nullptr, /*allow_exceptions=*/false);
    if (!parsed.is_string()) std::abort();
    // What was well formed comes back unchanged; what was not has become so.
    if (trainctl::json_quote(parsed.get<std::string>()) != quoted) std::abort();
    return 0;
}
