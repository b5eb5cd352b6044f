// A cpu device whose streams, compute included, run their work as late as events allow: only when a host wait
// forces it, and whatever is not ordered by an event in an order that is bad on purpose. A missing
// Stream::wait becomes a wrong number every time, on any machine.
//
//     for (std::uint64_t seed = 0; seed < 6; ++seed) {
//         const auto device = make_late_device({.seed = seed});
//         ...the code under test...                            // must give the right numbers for every seed
//     }
//
// seed 0: of the work that a host wait needs, communication runs first (finds communication that does not
// wait for its input); seed 1: compute runs first (finds compute that does not wait for what was
// communicated); other seeds: shuffled. Work that the wait does not need is not run at all, except that a
// wait stalled on a peer starts other communication after some milliseconds, since the peer may need that.
//
// Memory freed while work is pending is filled with 0xFF (NaN) and kept until nothing is pending.
// Thread rule: one thread per device; abort() from any.
#pragma once

#include <cstdint>
#include <memory>

#include "trainctl/device/cpu_device.h"

namespace trainctl::test {

struct LateDeviceOptions {
    std::uint64_t seed = 0;
    int threads = 1;
    CpuIsa isa = CpuIsa::V3;
};

std::unique_ptr<CpuDevice> make_late_device(const LateDeviceOptions& options);

}  // namespace trainctl::test
