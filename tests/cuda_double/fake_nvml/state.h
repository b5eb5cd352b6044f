// What the fake management library answers: one GPU, whose state tests set.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace trainctl::test {

struct FakeGpu {
    std::string bus = "0000:17:00.0";
    int driver_status = 0;  // what starting the library answers
    int status = 0;         // what every question about the GPU answers
    // Names of functions that this GPU does not support.
    std::vector<std::string> unsupported;
    unsigned utilisation = 97;
    unsigned memory_utilisation = 41;
    std::uint64_t memory_total = 80ULL << 30U;
    std::uint64_t memory_used = 61ULL << 30U;
    unsigned power_mw = 654'321;
    unsigned power_limit_mw = 700'000;
    unsigned temperature = 63;
    unsigned slowdown_temperature = 87;
    unsigned sm_clock = 1755;
    unsigned memory_clock = 2619;
    std::uint64_t clock_reasons = 0;
    std::uint64_t corrected = 5;
    std::uint64_t uncorrected = 0;
    unsigned remap_pending = 0;
    unsigned remap_failed = 0;
    std::vector<std::uint64_t> xids;  // not yet fetched, oldest first
    // How it is used, which must come out even.
    int started = 0;
    int event_sets = 0;
};

}  // namespace trainctl::test

// Exported by the library: its state, and a state as it is after loading.
extern "C" trainctl::test::FakeGpu* fake_nvml_gpu();
