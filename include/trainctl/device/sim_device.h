// The sim device: no memory behind its addresses, nothing computed, everything counted. With a profile it
// advances a virtual clock per stream, so that overlap can be shown exactly on any machine.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trainctl/device/device.h"

namespace trainctl {

// Speeds used by the virtual clocks; 0 means "takes no time".
struct SimProfile {
    double flops_per_s = 0.0;
    double bytes_per_s = 0.0;        // memory traffic of elementwise work
    double link_bytes_per_s = 0.0;   // per message
    double message_latency_s = 0.0;  // per collective
};

struct SimCounters {
    double flops = 0.0;
    double bytes_moved = 0.0;
    std::uint64_t ops = 0;
    std::uint64_t messages = 0;
    double message_bytes = 0.0;
};

struct SimAllocation {
    std::string what;
    std::uint64_t bytes = 0;
    Memory memory = Memory::Device;
};

class SimDevice : public Device {
  public:
    // Adds work to a stream: its clock advances by the time the profile gives, the counters by the amounts.
    virtual void work(Stream& stream, double flops, double bytes) = 0;
    // One collective or message; advances by latency + bytes / link.
    virtual void message(Stream& stream, double bytes) = 0;
    // Virtual seconds after all work issued to the stream so far.
    [[nodiscard]] virtual double clock_s(const Stream& stream) const = 0;
    [[nodiscard]] virtual SimCounters counters() const = 0;
    // Live allocations in the order they were made.
    [[nodiscard]] virtual std::vector<SimAllocation> live() const = 0;
};

std::unique_ptr<SimDevice> make_sim_device(const SimProfile& profile);

}  // namespace trainctl
