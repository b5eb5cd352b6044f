// The fuzz target's entry on every kept input: the corpus is a regression test in every build.
#include <cstdint>

#include "support/catch.h"
#include "trainctl/base/file_system.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

TEST_CASE("The TOML loader survives its fuzz corpus", "[config][fuzz]") {
    const auto files = trainctl::make_posix_file_system();
    std::size_t inputs = 0;
    for (const std::string& name : files->list(CORPUS_FOLDER)) {
        INFO(name);
        const std::string text = trainctl::read_text(*files, trainctl::join_path(CORPUS_FOLDER, name));
        CHECK(LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(text.data()), text.size()) == 0);
        ++inputs;
    }
    CHECK(inputs >= 20);
}
