#include "trainctl/rundir/product_choices.h"

#include <algorithm>

#include "support/catch.h"
#include "support/memory_file_system.h"

using namespace trainctl;
using namespace trainctl::test;

namespace {

const std::vector<ProductChoice> some = {{"GPU, 132", "forward 1 2 3 bf16 bf16", "0a0b"},
                                         {"GPU, 132", "weight 1 2 3 bf16 f32", "0c"},
                                         {"other", "forward 1 2 3 bf16 bf16", ""}};

}  // namespace

TEST_CASE("choices of products as text, and back", "[rundir]") {
    const std::string text = to_text(some);
    CHECK(parse_product_choices(text).choices == some);
    CHECK(parse_product_choices(text).damage.empty());
    CHECK(parse_product_choices(to_text({})).choices.empty());
    CHECK(parse_product_choices(to_text({})).damage.empty());
    CHECK(parse_product_choices("").choices.empty());
    CHECK(!parse_product_choices("").damage.empty());
}

TEST_CASE("a damaged byte costs the choice it lies in, and is told", "[rundir]") {
    const std::string text = to_text(some);
    const std::size_t lines_begin = text.find('\n') + 1;
    for (std::size_t at = 0; at < text.size(); ++at) {
        for (const char byte : {'0', '\n', '\t', '\xff'}) {
            std::string damaged = text;
            if (damaged[at] == byte) continue;
            damaged[at] = byte;
            const ProductChoices found = parse_product_choices(damaged);
            INFO(at << " " << static_cast<int>(byte));
            CHECK(!found.damage.empty());
            // A line end that is lost joins two lines; without the first line the rest means nothing.
            const bool joins = text[at] == '\n' && at + 1 < text.size();
            CHECK(found.choices.size() == (at < lines_begin ? 0 : some.size() - (joins ? 2 : 1)));
            for (const ProductChoice& choice : found.choices)
                CHECK(std::count(some.begin(), some.end(), choice) == 1);
        }
        CHECK_NOTHROW(parse_product_choices(text.substr(0, at)));
    }
    CHECK(parse_product_choices(text + to_text(some).substr(lines_begin)).choices == some);  // said twice
    CHECK(parse_product_choices(text + "more\n").choices == some);
    CHECK_THAT(parse_product_choices(text + "more\n").damage,
               Catch::Contains("1 line is damaged, first line 5"));
}

TEST_CASE("choices of products in a run directory", "[rundir]") {
    MemoryFileSystem files;
    const RunLayout layout("run");
    CHECK(read_product_choices(files, layout).choices.empty());
    CHECK(read_product_choices(files, layout).damage.empty());
    write_product_choices(files, layout, some);
    CHECK(read_product_choices(files, layout).choices == some);
    CHECK(files.status("run/tuning/products.txt").has_value());
    write_product_choices(files, layout, {});
    CHECK(read_product_choices(files, layout).choices.empty());
    files.remove_file("run/tuning/products.txt");
    files.make_directories("run/tuning/products.txt");
    CHECK(!read_product_choices(files, layout).damage.empty());
}
