#include "cuda_double/machine.h"

#include <chrono>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "cuda_double/emulated_device.h"

namespace trainctl::cuda_double {
namespace {

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

std::mutex machine_mutex;
std::shared_ptr<Machine> machine;
thread_local int current_device = 0;

}  // namespace

std::shared_ptr<Machine> this_machine() {
    const std::scoped_lock lock(machine_mutex);
    if (!machine) machine = std::make_shared<Machine>(MachineOptions{});
    return machine;
}

void start_machine(const MachineOptions& options) {
    const std::scoped_lock lock(machine_mutex);
    machine.reset();
    machine = std::make_shared<Machine>(options);
    current_device = 0;
}

Machine::Machine(const MachineOptions& wanted) : options(wanted) {
    for (int i = 0; i < options.devices; ++i) {
        devices.push_back(std::make_unique<EmulatedDevice>(i, options.seed, options.memory_bytes));
    }
}

EmulatedDevice& this_device() {
    return *this_machine()->devices.at(static_cast<std::size_t>(current_device));
}
int this_device_index() { return current_device; }
void use_device(int index) { current_device = index; }

EmulatedDevice::EmulatedDevice(int index, std::uint64_t seed, std::uint64_t memory_bytes)
    : index_(index), memory_bytes_(memory_bytes), seed_(seed), queues_(seed) {
    default_stream_.queue = queues_.open("default", StreamRole::Compute);
    hurry_ = std::thread([this] { run_on_its_own(); });
}

EmulatedDevice::~EmulatedDevice() {
    {
        const std::scoped_lock lock(mutex);
        ending_ = true;
    }
    hurry_.join();
}

// A device goes on when its host does something else for long, because peers may wait for its messages.
void EmulatedDevice::run_on_its_own() {
    constexpr std::chrono::milliseconds look{5};
    constexpr std::chrono::milliseconds patience{40};
    for (;;) {
        std::this_thread::sleep_for(look);
        const std::unique_lock lock(mutex, std::try_to_lock);
        if (!lock) continue;
        if (ending_) return;
        if (queues_.idle() || std::chrono::steady_clock::now() - last_call_ < patience) continue;
        memory.open();
        for (const auto& [raw, stream] : streams) queues_.nudge({stream->queue, stream->queue->issued});
        queues_.nudge({default_stream_.queue, default_stream_.queue->issued});
        memory.close();
    }
}

EmulatedStream* EmulatedDevice::find(cudaStream_t stream) {
    if (stream == nullptr) return &default_stream_;
    const auto found = streams.find(stream);
    return found == streams.end() ? nullptr : found->second.get();
}

cudaError_t EmulatedDevice::push(cudaStream_t stream, LateItem item) {
    const std::scoped_lock lock(mutex);
    last_call_ = std::chrono::steady_clock::now();
    if (!fault.empty()) return cudaErrorLaunchFailure;
    EmulatedStream* found = find(stream);
    if (found == nullptr) return cudaErrorInvalidResourceHandle;
    if (found->capture) {
        remember("a stream was asked for something that a graph of kernels, copies and fills does not hold");
        return cudaErrorStreamCaptureUnsupported;
    }
    queues_.push(*found->queue, std::move(item));
    return cudaSuccess;
}

cudaError_t EmulatedDevice::force(const LateTicket& ticket) {
    const std::scoped_lock lock(mutex);
    if (fault.empty()) {
        memory.open();
        try {
            // Whoever watches over messages asks for events while the host waits for a peer.
            queues_.force(ticket, [this] {
                last_call_ = std::chrono::steady_clock::now();
                mutex.unlock();
                LateQueues::rest();
                mutex.lock();
            });
        } catch (const Error& error) {
            if (fault.empty()) fault = error.what();
        }
        memory.close();
    }
    last_call_ = std::chrono::steady_clock::now();
    return fault.empty() ? cudaSuccess : cudaErrorLaunchFailure;
}

cudaError_t EmulatedDevice::query(const LateTicket& ticket) {
    const std::scoped_lock lock(mutex);
    if (!fault.empty()) return cudaErrorLaunchFailure;
    if (LateQueues::passed(ticket)) return cudaSuccess;
    memory.open();
    queues_.nudge(ticket);
    memory.close();
    return cudaErrorNotReady;
}

void EmulatedDevice::remember(const std::string& text) {
    if (fault.empty()) fault = text;
}

cudaError_t EmulatedDevice::refuse_in_capture(const char* call) {
    if (capturing != std::this_thread::get_id()) return cudaSuccess;
    remember(std::string(call) + " was called while the thread captured a stream");
    return cudaErrorStreamCaptureUnsupported;
}

std::unique_ptr<EmulatedStream> EmulatedDevice::open_stream(StreamRole role) {
    auto stream = std::make_unique<EmulatedStream>();
    stream->queue = queues_.open("stream " + std::to_string(streams.size()), role);
    return stream;
}

LateTicket EmulatedDevice::everything(EmulatedStream& stream) { return {stream.queue, stream.queue->issued}; }

std::uint64_t EmulatedDevice::next_seed() { return seed_ * 1'000'003 + ++kernels; }

std::string machine_fault() {
    EmulatedDevice& device = this_device();
    const std::scoped_lock lock(device.mutex);
    return device.fault;
}

namespace {

std::uint64_t sum_over_devices(std::uint64_t EmulatedDevice::*count) {
    std::uint64_t sum = 0;
    for (const auto& device : this_machine()->devices) {
        const std::scoped_lock lock(device->mutex);
        sum += (*device).*count;
    }
    return sum;
}

}  // namespace

std::uint64_t kernels_run() { return sum_over_devices(&EmulatedDevice::kernels); }
std::uint64_t products_run() { return sum_over_devices(&EmulatedDevice::products); }
std::uint64_t heuristic_queries() { return this_machine()->heuristic_queries; }

GraphCounts graph_counts() {
    GraphCounts sum;
    for (const auto& device : this_machine()->devices) {
        const std::scoped_lock lock(device->mutex);
        sum.launched += device->graph_launches;
        sum.alive += device->graphs.size() + device->executables.size();
    }
    return sum;
}

cudaError_t enqueue_kernel(cudaStream_t stream, const char* name, const KernelShape& shape,
                           std::function<void()> thread) {
    EmulatedDevice& device = this_device();
    return enqueue_work(stream, [&device, name, shape, thread = std::move(thread)] {
        try {
            run_kernel(name, shape, device.next_seed(), thread);
        } catch (const KernelFault& fault) {
            device.remember(fault.what());
            throw;
        }
        const std::string overrun = device.memory.overrun();
        if (overrun.empty()) return;
        device.remember("kernel " + std::string(name) + ": " + overrun);
        throw KernelFault(device.fault);
    });
}

cudaError_t enqueue_work(cudaStream_t stream, std::function<void()> work) {
    EmulatedDevice& device = this_device();
    const std::scoped_lock lock(device.mutex);
    if (stream == nullptr) {
        const cudaError_t refused = device.refuse_in_capture("the legacy stream");
        if (refused != cudaSuccess) return refused;
    }
    if (EmulatedStream* found = device.find(stream); found != nullptr && found->capture) {
        found->capture->push_back(std::move(work));
        return cudaSuccess;
    }
    return enqueue_operation(stream, std::make_unique<Work>(std::move(work)));
}

cudaError_t enqueue_operation(cudaStream_t stream, std::unique_ptr<Operation> operation) {
    return this_device().push(stream, {std::move(operation), {}});
}

}  // namespace trainctl::cuda_double
