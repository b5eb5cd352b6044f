#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace trainctl {

// Offset of the byte where brackets nest, or one key has parts, deeper than `limit`. A look at the raw text
// before the parser sees it: the parser recurses, and destroys recursively, on input of any depth.
std::optional<std::size_t> excess_depth(std::string_view text, int limit);

}  // namespace trainctl
