#include "trainctl/ops/product_plans.h"

#include <fmt/format.h>

#include <array>
#include <charconv>

namespace trainctl {
namespace {

struct KindName {
    MatmulKind kind;
    std::string_view name;
};
constexpr std::array<KindName, 3> kinds{{{MatmulKind::Forward, "forward"},
                                         {MatmulKind::BackwardInput, "input"},
                                         {MatmulKind::BackwardWeight, "weight"}}};

std::vector<std::string_view> words_of(std::string_view text) {
    std::vector<std::string_view> words;
    for (;;) {
        const std::size_t space = text.find(' ');
        words.push_back(text.substr(0, space));
        if (space == std::string_view::npos) return words;
        text.remove_prefix(space + 1);
    }
}

std::optional<std::int64_t> size_of(std::string_view word) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc{} || end != word.data() + word.size() || value < 1) return std::nullopt;
    return value;
}

}  // namespace

std::string to_string(const Product& product) {
    std::string_view kind;
    for (const KindName& each : kinds) {
        if (each.kind == product.kind) kind = each.name;
    }
    return fmt::format("{} {} {} {} {} {}{}", kind, product.m, product.n, product.k,
                       dtype_name(product.operands), dtype_name(product.result), product.bias ? " bias" : "");
}

std::optional<Product> parse_product(std::string_view text) {
    const std::vector<std::string_view> words = words_of(text);
    if (words.size() != 6 && (words.size() != 7 || words[6] != "bias")) return std::nullopt;
    const auto m = size_of(words[1]);
    const auto n = size_of(words[2]);
    const auto k = size_of(words[3]);
    const auto operands = parse_dtype(words[4]);
    const auto result = parse_dtype(words[5]);
    if (!m || !n || !k || !operands || !result) return std::nullopt;
    for (const KindName& each : kinds) {
        if (each.name == words[0])
            return Product{each.kind, *m, *n, *k, *operands, *result, words.size() == 7};
    }
    return std::nullopt;
}

}  // namespace trainctl
