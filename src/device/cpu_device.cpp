#include "trainctl/device/cpu_device.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>

#include "device/pages.h"
#include "device/progress_engine.h"
#include "device/system_info.h"
#include "trainctl/base/clock.h"
#include "trainctl/base/text.h"
#include "trainctl/device/host_stream.h"

namespace trainctl {
namespace {

// How long memory is kept for pending messages when an exception unwinds.
constexpr double unwinding_grace_s = 2.0;

class HostEvent final : public Event {
  public:
    explicit HostEvent(ProgressEngine& engine) : engine_(engine) {}

    [[nodiscard]] bool complete() const override { return ticket_.passed(); }
    void synchronize() override { engine_.wait(ticket_); }

    void set(Ticket ticket) { ticket_ = std::move(ticket); }
    [[nodiscard]] const Ticket& ticket() const { return ticket_; }

  private:
    ProgressEngine& engine_;
    Ticket ticket_;
};

const Ticket& ticket_of(const Event& event) {
    const auto* host = dynamic_cast<const HostEvent*>(&event);
    invariant(host != nullptr, "an event of another kind of device was used with a cpu stream");
    return host->ticket();
}

void set_ticket(Event& event, Ticket ticket) {
    auto* host = dynamic_cast<HostEvent*>(&event);
    invariant(host != nullptr, "an event of another kind of device was used with a cpu stream");
    host->set(std::move(ticket));
}

class WaitOperation final : public Operation {
  public:
    WaitOperation(ProgressEngine& engine, Ticket ticket) : engine_(engine), ticket_(std::move(ticket)) {}
    bool advance() override {
        if (!ticket_.passed()) return false;
        engine_.check(ticket_);
        return true;
    }

  private:
    ProgressEngine& engine_;
    Ticket ticket_;
};

class WorkOperation final : public Operation {
  public:
    explicit WorkOperation(std::function<void()> work) : work_(std::move(work)) {}
    bool advance() override {
        work_();
        return true;
    }

  private:
    std::function<void()> work_;
};

class QueuedStream final : public HostStream {
  public:
    QueuedStream(ProgressEngine& engine, std::string_view name, StreamRole role)
        : engine_(engine), queue_(engine.open(name, role)) {}
    ~QueuedStream() override { engine_.close(*queue_); }
    QueuedStream(const QueuedStream&) = delete;
    QueuedStream& operator=(const QueuedStream&) = delete;

    void record(Event& event) override { set_ticket(event, engine_.mark(queue_)); }
    void wait(const Event& event) override {
        const Ticket& ticket = ticket_of(event);
        if (ticket.queue != nullptr) engine_.push(*queue_, std::make_unique<WaitOperation>(engine_, ticket));
    }
    void synchronize() override { engine_.wait(engine_.mark(queue_)); }
    [[nodiscard]] std::string_view name() const override { return queue_->name; }
    void submit(std::unique_ptr<Operation> operation) override {
        engine_.push(*queue_, std::move(operation));
    }
    void run(std::function<void()> work) override {
        engine_.push(*queue_, std::make_unique<WorkOperation>(std::move(work)));
    }

  private:
    ProgressEngine& engine_;
    std::shared_ptr<StreamQueue> queue_;
};

// Work runs at once on the calling thread, so that whatever was issued is done and every record is passed.
class InlineStream final : public HostStream {
  public:
    InlineStream(ProgressEngine& engine, std::string_view name)
        : engine_(engine), queue_(engine.open(name, StreamRole::Compute)) {}
    ~InlineStream() override { engine_.close(*queue_); }
    InlineStream(const InlineStream&) = delete;
    InlineStream& operator=(const InlineStream&) = delete;

    void record(Event& event) override { set_ticket(event, {}); }
    void wait(const Event& event) override {
        const Ticket& ticket = ticket_of(event);
        if (ticket.passed()) return engine_.wait(ticket);  // rethrows what failed
        const RangeScope range(shown_, RangeKind::CommunicationWait);
        const SystemClock clock;
        const double began = clock.monotonic_s();
        engine_.wait(ticket);
        held_up_s_ += clock.monotonic_s() - began;
    }
    [[nodiscard]] double held_up_s() const override { return held_up_s_; }
    void show_waits(Ranges* ranges) override { shown_ = ranges; }
    void synchronize() override { engine_.check_aborted(); }
    [[nodiscard]] std::string_view name() const override { return queue_->name; }
    void submit(std::unique_ptr<Operation> operation) override {
        engine_.push(*queue_, std::move(operation));
        engine_.wait(engine_.mark(queue_));
    }
    void run(std::function<void()> work) override {
        engine_.check_aborted();
        work();
    }

  private:
    ProgressEngine& engine_;
    std::shared_ptr<StreamQueue> queue_;  // for operations handed to the progress thread
    double held_up_s_ = 0.0;
    Ranges* shown_ = nullptr;
};

class CpuDeviceImpl final : public CpuDevice {
  public:
    explicit CpuDeviceImpl(const CpuDeviceOptions& options) : options_(options) {
        invariant(options.threads >= 1, "a cpu device needs at least one compute thread");
        info_.kind = "cpu";
        info_.name = processor_name();
        info_.isa = cpu_isa_name(options.isa);
        info_.threads = options.threads;
        info_.memory_bytes = usable_memory_bytes();
    }

    ~CpuDeviceImpl() override {
        if (std::uncaught_exceptions() > 0) engine_.abandon(unwinding_grace_s);
    }
    CpuDeviceImpl(const CpuDeviceImpl&) = delete;
    CpuDeviceImpl& operator=(const CpuDeviceImpl&) = delete;

    [[nodiscard]] DeviceInfo info() const override { return info_; }
    [[nodiscard]] int threads() const override { return options_.threads; }
    [[nodiscard]] CpuIsa isa() const override { return options_.isa; }
    void abort(const Error& error) override { engine_.abort(error); }

    std::unique_ptr<Stream> make_stream(std::string_view name, StreamRole role) override {
        if (role == StreamRole::Compute) return std::make_unique<InlineStream>(engine_, name);
        return std::make_unique<QueuedStream>(engine_, name, role);
    }
    std::unique_ptr<Event> make_event() override { return std::make_unique<HostEvent>(engine_); }

    void copy(Stream& stream, std::byte* to, const std::byte* from, std::size_t bytes) override {
        if (bytes == 0) return;
        host_stream(stream).run([to, from, bytes] { std::memmove(to, from, bytes); });
    }

    Buffer allocate(std::size_t bytes, Memory memory, std::string_view what) override {
        const std::scoped_lock lock(mutex_);
        const std::uint64_t used = use_.device_bytes + use_.pinned_bytes;
        if (bytes > info_.memory_bytes - std::min(used, info_.memory_bytes))
            fail_out_of_memory(bytes, what, "");
        std::byte* data = map_zeroed(bytes);
        if (data == nullptr) fail_out_of_memory(bytes, what, " (refused by the kernel)");
        count(memory, static_cast<std::int64_t>(bytes));
        ++use_.allocations;
        live_.emplace(data, Live{std::string(what), bytes});
        return {this, data, bytes, memory};
    }

    [[nodiscard]] MemoryUse memory_use() const override {
        const std::scoped_lock lock(mutex_);
        return use_;
    }

  private:
    struct Live {
        std::string what;
        std::size_t bytes;
    };

    void deallocate(std::byte* data, std::size_t bytes, Memory memory) noexcept override {
        if (std::uncaught_exceptions() > 0) engine_.abandon(unwinding_grace_s);
        const std::scoped_lock lock(mutex_);
        unmap(data, bytes);
        count(memory, -static_cast<std::int64_t>(bytes));
        live_.erase(data);
    }

    void count(Memory memory, std::int64_t bytes) {
        const bool device = memory == Memory::Device;
        std::uint64_t& used = device ? use_.device_bytes : use_.pinned_bytes;
        std::uint64_t& peak = device ? use_.device_peak_bytes : use_.pinned_peak_bytes;
        used += static_cast<std::uint64_t>(bytes);
        peak = std::max(peak, used);
    }

    [[noreturn]] void fail_out_of_memory(std::size_t bytes, std::string_view what,
                                         std::string_view how) const {
        std::map<std::string, std::uint64_t> owners;
        for (const auto& [data, live] : live_) owners[live.what] += live.bytes;
        std::string table;
        for (const auto& [owner, total] : owners) table += fmt::format(" {} {},", owner, format_bytes(total));
        if (!table.empty()) table.back() = '.';
        fail(Exit::Resource,
             fmt::format(
                 "out of memory: {} needs {}{}, and {} of {} usable are taken by this rank.{} Use a smaller "
                 "micro-batch or model, gradient checkpointing, a higher ZeRO stage, or more nodes",
                 what, format_bytes(bytes), how, format_bytes(use_.device_bytes + use_.pinned_bytes),
                 format_bytes(info_.memory_bytes), table));
    }

    CpuDeviceOptions options_;
    DeviceInfo info_;
    mutable std::mutex mutex_;  // accounting: staging may be freed by the progress thread
    MemoryUse use_;
    std::map<const std::byte*, Live> live_;
    ProgressEngine engine_;  // last: its thread ends first
};

}  // namespace

std::unique_ptr<CpuDevice> make_cpu_device(const CpuDeviceOptions& options) {
    return std::make_unique<CpuDeviceImpl>(options);
}

}  // namespace trainctl
