#include "trainctl/device/sim_device.h"

#include <fmt/core.h>

#include <algorithm>

#include "device/pages.h"
#include "trainctl/base/text.h"

namespace trainctl {
namespace {

// Address space only; more than any rank can have as memory.
constexpr std::size_t sim_reservation_bytes = std::size_t{16} << 40U;

// The host issues work in no time; it only waits. What is issued after a wait starts no earlier than its end.
struct HostClock {
    double now_s = 0.0;
    void wait_until(double time_s) { now_s = std::max(now_s, time_s); }
};

class SimEvent final : public Event {
  public:
    explicit SimEvent(HostClock& host) : host_(host) {}
    [[nodiscard]] bool complete() const override { return time_s <= host_.now_s; }
    void synchronize() override { host_.wait_until(time_s); }

    double time_s = 0.0;

  private:
    HostClock& host_;
};

class SimStream final : public Stream {
  public:
    SimStream(HostClock& host, std::string_view name) : host_(host), name_(name) {}

    void record(Event& event) override {
        auto* sim = dynamic_cast<SimEvent*>(&event);
        invariant(sim != nullptr, "an event of another kind of device was used with a sim stream");
        sim->time_s = clock_s_;
    }
    void wait(const Event& event) override {
        const auto* sim = dynamic_cast<const SimEvent*>(&event);
        invariant(sim != nullptr, "an event of another kind of device was used with a sim stream");
        clock_s_ = std::max(clock_s_, sim->time_s);
    }
    void synchronize() override { host_.wait_until(clock_s_); }
    [[nodiscard]] std::string_view name() const override { return name_; }

    void advance(double seconds) { clock_s_ = std::max(clock_s_, host_.now_s) + seconds; }
    [[nodiscard]] double clock_s() const { return clock_s_; }

  private:
    HostClock& host_;
    std::string name_;
    double clock_s_ = 0.0;
};

double time_for(double amount, double per_second) { return per_second > 0.0 ? amount / per_second : 0.0; }

const SimStream& sim_stream(const Stream& stream) {
    const auto* sim = dynamic_cast<const SimStream*>(&stream);
    invariant(sim != nullptr, "a stream of another kind of device was used with the sim device");
    return *sim;
}

class SimDeviceImpl final : public SimDevice {
  public:
    explicit SimDeviceImpl(const SimProfile& profile) : profile_(profile) {}

    [[nodiscard]] DeviceInfo info() const override {
        DeviceInfo info;
        info.kind = "sim";
        info.name = "virtual device";
        info.memory_bytes = range_.bytes();
        return info;
    }

    Buffer allocate(std::size_t bytes, Memory memory, std::string_view what) override {
        const std::size_t step = round_up(std::max<std::size_t>(bytes, 1), page_bytes);
        if (step < bytes || step > range_.bytes() - next_) {
            fail(Exit::Resource,
                 fmt::format(
                     "{} alone would take {}, more than any rank can hold ({}); lower "
                     "training.micro_batch_size or the model's sizes, or share them between more ranks "
                     "([parallel], memory.zero_stage)",
                     what, format_bytes(bytes), format_bytes(range_.bytes())));
        }
        std::byte* data = range_.begin() + next_;
        next_ += step;
        count(memory, static_cast<std::int64_t>(bytes));
        ++use_.allocations;
        live_.push_back({data, {std::string(what), bytes, memory}});
        return {this, data, bytes, memory};
    }

    std::unique_ptr<Stream> make_stream(std::string_view name, StreamRole /*role*/) override {
        return std::make_unique<SimStream>(host_, name);
    }
    std::unique_ptr<Event> make_event() override { return std::make_unique<SimEvent>(host_); }

    void copy(Stream& stream, std::byte* /*to*/, const std::byte* /*from*/, std::size_t bytes) override {
        work(stream, 0.0, 2.0 * static_cast<double>(bytes));  // read and written
    }

    [[nodiscard]] MemoryUse memory_use() const override { return use_; }

    void work(Stream& stream, double flops, double bytes) override {
        // Roofline: arithmetic and memory traffic of one op overlap.
        advance(stream,
                std::max(time_for(flops, profile_.flops_per_s), time_for(bytes, profile_.bytes_per_s)));
        counters_.flops += flops;
        counters_.bytes_moved += bytes;
        ++counters_.ops;
    }

    void message(Stream& stream, double bytes) override {
        advance(stream, profile_.message_latency_s + time_for(bytes, profile_.link_bytes_per_s));
        ++counters_.messages;
        counters_.message_bytes += bytes;
    }

    [[nodiscard]] double clock_s(const Stream& stream) const override { return sim_stream(stream).clock_s(); }
    [[nodiscard]] SimCounters counters() const override { return counters_; }
    [[nodiscard]] std::vector<SimAllocation> live() const override {
        std::vector<SimAllocation> allocations;
        allocations.reserve(live_.size());
        for (const Live& live : live_) allocations.push_back(live.allocation);
        return allocations;
    }

  private:
    struct Live {
        const std::byte* data;
        SimAllocation allocation;
    };

    static void advance(Stream& stream, double seconds) {
        auto* sim = dynamic_cast<SimStream*>(&stream);
        invariant(sim != nullptr, "a stream of another kind of device was used with the sim device");
        sim->advance(seconds);
    }

    void deallocate(std::byte* data, std::size_t bytes, Memory memory) noexcept override {
        count(memory, -static_cast<std::int64_t>(bytes));
        std::erase_if(live_, [&](const Live& live) { return live.data == data; });
    }

    void count(Memory memory, std::int64_t bytes) {
        const bool device = memory == Memory::Device;
        std::uint64_t& used = device ? use_.device_bytes : use_.pinned_bytes;
        std::uint64_t& peak = device ? use_.device_peak_bytes : use_.pinned_peak_bytes;
        used += static_cast<std::uint64_t>(bytes);
        peak = std::max(peak, used);
    }

    SimProfile profile_;
    AddressRange range_{sim_reservation_bytes};
    std::size_t next_ = 0;
    HostClock host_;
    MemoryUse use_;
    SimCounters counters_;
    std::vector<Live> live_;
};

}  // namespace

std::unique_ptr<SimDevice> make_sim_device(const SimProfile& profile) {
    return std::make_unique<SimDeviceImpl>(profile);
}

}  // namespace trainctl
