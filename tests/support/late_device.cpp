#include "support/late_device.h"

#include <cstring>
#include <exception>
#include <map>
#include <vector>

#include "support/late_queues.h"
#include "trainctl/device/host_stream.h"

namespace trainctl::test {
namespace {

class LateEvent final : public Event {
  public:
    explicit LateEvent(LateQueues& queues) : queues_(queues) {}
    // Each look moves the work on a little, so that polling comes to an end.
    [[nodiscard]] bool complete() const override {
        if (LateQueues::passed(ticket)) return true;
        queues_.nudge(ticket);
        return false;
    }
    void synchronize() override { queues_.force(ticket); }

    LateTicket ticket;

  private:
    LateQueues& queues_;
};

class Work final : public Operation {
  public:
    explicit Work(std::function<void()> work) : work_(std::move(work)) {}
    bool advance() override {
        work_();
        return true;
    }

  private:
    std::function<void()> work_;
};

class LateStream final : public HostStream {
  public:
    LateStream(LateQueues& queues, std::string_view name, StreamRole role)
        : queues_(queues), queue_(queues.open(name, role)) {}

    void record(Event& event) override { dynamic_cast<LateEvent&>(event).ticket = {queue_, queue_->issued}; }
    void wait(const Event& event) override {
        const LateTicket ticket = dynamic_cast<const LateEvent&>(event).ticket;
        if (ticket.queue != nullptr) queues_.push(*queue_, {nullptr, ticket});
    }
    void synchronize() override { queues_.force({queue_, queue_->issued}); }
    [[nodiscard]] std::string_view name() const override { return queue_->name; }
    void submit(std::unique_ptr<Operation> operation) override {
        queues_.push(*queue_, {std::move(operation), {}});
    }
    void run(std::function<void()> work) override { submit(std::make_unique<Work>(std::move(work))); }

  private:
    LateQueues& queues_;
    std::shared_ptr<LateQueue> queue_;
};

class LateDevice final : public CpuDevice {
  public:
    explicit LateDevice(const LateDeviceOptions& options)
        : memory_(make_cpu_device({options.threads, options.isa})), queues_(options.seed) {}

    ~LateDevice() override {
        if (std::uncaught_exceptions() > 0) {
            queues_.drop();
        } else {
            queues_.drain();  // peers may need our messages
        }
        queues_.drop();
    }

    [[nodiscard]] DeviceInfo info() const override { return memory_->info(); }
    [[nodiscard]] int threads() const override { return memory_->threads(); }
    [[nodiscard]] CpuIsa isa() const override { return memory_->isa(); }
    void abort(const Error& error) override { queues_.abort(error); }
    [[nodiscard]] MemoryUse memory_use() const override { return memory_->memory_use(); }

    std::unique_ptr<Stream> make_stream(std::string_view name, StreamRole role) override {
        // What training does not wait for has threads of its own, which these queues do not know.
        if (role == StreamRole::Background) return memory_->make_stream(name, role);
        return std::make_unique<LateStream>(queues_, name, role);
    }
    std::unique_ptr<Event> make_event() override { return std::make_unique<LateEvent>(queues_); }

    void copy(Stream& stream, std::byte* to, const std::byte* from, std::size_t bytes) override {
        if (bytes == 0) return;
        host_stream(stream).run([to, from, bytes] { std::memmove(to, from, bytes); });
    }

    Buffer allocate(std::size_t bytes, Memory memory, std::string_view what) override {
        if (queues_.idle()) freed_.clear();
        Buffer owned = memory_->allocate(bytes, memory, what);
        std::byte* data = owned.data();
        live_.emplace(data, std::move(owned));
        return {this, data, bytes, memory};
    }

  private:
    void deallocate(std::byte* data, std::size_t bytes, Memory /*memory*/) noexcept override {
        if (std::uncaught_exceptions() > 0) queues_.drop();
        const auto found = live_.find(data);
        if (!queues_.idle()) {
            std::memset(data, 0xFF, bytes);
            freed_.push_back(std::move(found->second));
        }
        live_.erase(found);
    }

    std::unique_ptr<CpuDevice> memory_;
    std::map<const std::byte*, Buffer> live_;
    std::vector<Buffer> freed_;  // while work was pending
    LateQueues queues_;
};

}  // namespace

std::unique_ptr<CpuDevice> make_late_device(const LateDeviceOptions& options) {
    return std::make_unique<LateDevice>(options);
}

}  // namespace trainctl::test
