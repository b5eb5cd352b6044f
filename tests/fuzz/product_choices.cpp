// Fuzz target: reading the choices of products never fails, and what it takes for whole survives being
// written and read again.
#include "trainctl/rundir/product_choices.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const trainctl::ProductChoices read = trainctl::parse_product_choices(text);
    const trainctl::ProductChoices again = trainctl::parse_product_choices(to_text(read.choices));
    if (again.choices != read.choices || !again.damage.empty()) std::abort();
    return 0;
}
