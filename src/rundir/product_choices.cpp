#include "trainctl/rundir/product_choices.h"

#include <fmt/format.h>

#include <optional>
#include <set>
#include <utility>

#include "trainctl/base/error.h"
#include "trainctl/base/hash.h"
#include "trainctl/base/text.h"
#include "trainctl/rundir/durable_file.h"

namespace trainctl {
namespace {

constexpr std::string_view first_line = "trainctl products v1";

std::string checked(const std::string& rest) { return fmt::format("{:08x}\t{}\n", crc32c(rest), rest); }

std::optional<ProductChoice> parse_line(std::string_view line) {
    constexpr std::size_t crc_digits = 8;
    if (line.size() <= crc_digits || line[crc_digits] != '\t') return std::nullopt;
    const std::string_view rest = line.substr(crc_digits + 1);
    if (line.substr(0, crc_digits) != fmt::format("{:08x}", crc32c(rest))) return std::nullopt;
    const std::size_t first = rest.find('\t');
    if (first == std::string_view::npos) return std::nullopt;
    const std::size_t second = rest.find('\t', first + 1);
    if (second == std::string_view::npos || rest.find('\t', second + 1) != std::string_view::npos)
        return std::nullopt;
    return ProductChoice{std::string(rest.substr(0, first)),
                         std::string(rest.substr(first + 1, second - first - 1)),
                         std::string(rest.substr(second + 1))};
}

}  // namespace

std::string to_text(const std::vector<ProductChoice>& choices) {
    std::string text = fmt::format("{}\n", first_line);
    for (const ProductChoice& choice : choices)
        text += checked(fmt::format("{}\t{}\t{}", choice.device, choice.product, choice.algorithm));
    return text;
}

ProductChoices parse_product_choices(std::string_view text) {
    ProductChoices found;
    std::set<std::pair<std::string, std::string>> seen;
    std::size_t ignored = 0;
    std::size_t first_ignored = 0;
    if (text.empty()) found.damage = "it is empty";
    for (std::size_t number = 1; !text.empty(); ++number) {
        const std::size_t end = text.find('\n');
        const std::string_view line = text.substr(0, end);
        text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
        if (number == 1) {
            if (line == first_line) continue;
            found.damage = fmt::format("its first line is not '{}'", first_line);
            return found;
        }
        auto choice = parse_line(line);
        if (choice && seen.emplace(choice->device, choice->product).second) {
            found.choices.push_back(std::move(*choice));
        } else if (++ignored == 1) {
            first_ignored = number;
        }
    }
    if (ignored > 0)
        found.damage = fmt::format("{} {} damaged, first line {}", counted(ignored, "line"),
                                   ignored == 1 ? "is" : "are", first_ignored);
    return found;
}

ProductChoices read_product_choices(FileSystem& files, const RunLayout& layout) {
    const std::string path = layout.product_choices();
    ProductChoices found;
    try {
        if (!files.status(path)) return found;
        found = parse_product_choices(read_text(files, path));
    } catch (const Error& error) {
        found.damage = error.what();
    }
    return found;
}

void write_product_choices(FileSystem& files, const RunLayout& layout,
                           const std::vector<ProductChoice>& choices) {
    const std::string path = layout.product_choices();
    make_durable_directories(files, parent_path(path));
    write_durably(files, parent_path(path), path.substr(parent_path(path).size() + 1), to_text(choices));
}

}  // namespace trainctl
