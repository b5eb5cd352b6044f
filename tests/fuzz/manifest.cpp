// Fuzz target: a MANIFEST or COMMIT from anywhere is refused with Exit::BadInput, or says the same when
// written again.
#include "trainctl/rundir/manifest.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "trainctl/base/error.h"
#include "trainctl/rundir/commit.h"

namespace {

template <class Check>
void must_refuse_or_pass(Check check) {
    try {
        check();
    } catch (const trainctl::Error& error) {
        if (error.code() != trainctl::Exit::BadInput) std::abort();
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    must_refuse_or_pass([&] {
        const trainctl::Manifest manifest = trainctl::parse_manifest(text, "MANIFEST");
        const std::string written = trainctl::manifest_text(manifest);
        const trainctl::Manifest again = trainctl::parse_manifest(written, "MANIFEST");
        if (trainctl::manifest_text(again) != written) std::abort();
    });
    must_refuse_or_pass([&] {
        if (trainctl::commit_text(trainctl::parse_commit(text, "COMMIT")) != text) std::abort();
    });
    return 0;
}
