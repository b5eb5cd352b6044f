// Runs the cases if there is a GPU; else says why there is none and exits with what ctest takes for
// "skipped".
#define CATCH_CONFIG_RUNNER
#include <cstdio>
#include <string>

#include "support/catch.h"
#include "trainctl/device/cuda_device.h"

int main(int argc, char** argv) {
    constexpr int skipped = 77;
    std::string why;
    if (trainctl::list_cuda_devices(&why).empty()) {
        // Capitals are what scripts/test_summary.py counts.
        std::printf("SKIPPED: all cases: no CUDA device: %s\n", why.c_str());
        return skipped;
    }
    return Catch::Session().run(argc, argv);
}
