// Runs a fuzz target over files kept in the tree, without libFuzzer: `fuzz_<name> DIRECTORY`.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

#include "trainctl/base/error.h"
#include "trainctl/base/file_system.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

int main(int argc, char** argv) {
    if (argc != 2) {
        std::fputs("usage: fuzz_<name> DIRECTORY\n", stderr);
        return 2;
    }
    try {
        const auto files = trainctl::make_posix_file_system();
        std::size_t count = 0;
        for (const std::string& name : files->list(argv[1])) {
            const std::string input = trainctl::read_text(*files, trainctl::join_path(argv[1], name));
            std::printf("%s: %zu bytes\n", name.c_str(), input.size());
            std::fflush(stdout);  // so that a crash shows which input it was
            LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
            ++count;
        }
        std::printf("%zu inputs\n", count);
        return count > 0 ? 0 : 1;  // an empty corpus checks nothing
    } catch (const trainctl::Error& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
