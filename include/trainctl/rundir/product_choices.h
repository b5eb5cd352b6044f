// Which algorithm every matrix product of a run goes by on every kind of device (RUN/tuning/products.txt): a
// resumed run takes them from there, so that its bits stay the same.
//
// A text of one line per choice under a line that names the format:
//
//   trainctl products v1
//   <CRC-32C of the rest, 8 hex digits> TAB <device> TAB <product> TAB <algorithm>
#pragma once

#include <compare>
#include <string>
#include <string_view>
#include <vector>

#include "trainctl/base/file_system.h"
#include "trainctl/rundir/layout.h"

namespace trainctl {

// Opaque here; none holds a tab or a line end.
struct ProductChoice {
    std::string device;
    std::string product;
    std::string algorithm;  // empty: none yet
    auto operator<=>(const ProductChoice&) const = default;
};

struct ProductChoices {
    std::vector<ProductChoice> choices;
    std::string damage;  // what was ignored, and where; empty: nothing
};

std::string to_text(const std::vector<ProductChoice>& choices);
// Never fails: lines that are not whole, and second ones for the same device and product, are ignored.
ProductChoices parse_product_choices(std::string_view text);

// No file: no choices. One that cannot be read: none, and `damage` says why.
ProductChoices read_product_choices(FileSystem& files, const RunLayout& layout);
// Durable and whole on return. One writer: rank 0, under the lease.
void write_product_choices(FileSystem& files, const RunLayout& layout,
                           const std::vector<ProductChoice>& choices);

}  // namespace trainctl
