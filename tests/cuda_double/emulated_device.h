// What the doubles of CUDA's libraries share of the emulated machine.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cuda_double/device_memory.h"
#include "cuda_double/machine.h"
#include "support/late_queues.h"

namespace trainctl::cuda_double {

using test::LateItem;
using test::LateQueue;
using test::LateQueues;
using test::LateTicket;

using GraphNodes = std::vector<std::function<void()>>;  // in the order of one stream

struct EmulatedStream {
    std::shared_ptr<LateQueue> queue;
    std::shared_ptr<GraphNodes> capture;  // takes the work instead; nullptr: the queue does
};

struct EmulatedGraph {
    std::shared_ptr<const GraphNodes> nodes;
    LateTicket newest;  // launch
};

struct EmulatedEvent {
    LateTicket ticket;
    std::shared_ptr<double> seconds;  // when the newest record was passed; of the machine's EventClock
};

// Thread rule: `mutex` guards everything; work runs with it held. A host that waits for a peer lets go of it
// from time to time.
class EmulatedDevice {
  public:
    EmulatedDevice(int index, std::uint64_t seed, std::uint64_t memory_bytes);
    ~EmulatedDevice();
    EmulatedDevice(const EmulatedDevice&) = delete;
    EmulatedDevice& operator=(const EmulatedDevice&) = delete;

    // ---- these lock; force() must not be called with the lock held ----
    cudaError_t push(cudaStream_t stream, LateItem item);
    cudaError_t force(const LateTicket& ticket);  // runs what the ticket needs
    cudaError_t query(const LateTicket& ticket);

    // ---- for those who hold the lock, also running work ----
    EmulatedStream* find(cudaStream_t stream);  // nullptr: not a stream of this device
    std::unique_ptr<EmulatedStream> open_stream(StreamRole role);
    static LateTicket everything(EmulatedStream& stream);
    void remember(const std::string& text);
    // What the thread that captures may not do; cudaSuccess if none captures or another one does.
    cudaError_t refuse_in_capture(const char* call);
    std::uint64_t next_seed();
    [[nodiscard]] std::uint64_t memory_bytes() const { return memory_bytes_; }
    [[nodiscard]] int index() const { return index_; }

    std::recursive_mutex mutex;
    DeviceMemory memory;
    std::map<cudaStream_t, std::unique_ptr<EmulatedStream>> streams;
    std::map<cudaEvent_t, std::unique_ptr<EmulatedEvent>> events;
    std::map<cudaGraph_t, std::shared_ptr<const GraphNodes>> graphs;
    std::map<cudaGraphExec_t, std::unique_ptr<EmulatedGraph>> executables;
    std::optional<std::thread::id> capturing;  // thread
    std::uint64_t graph_launches = 0;
    std::map<const std::byte*, std::size_t> pinned;
    std::string fault;
    std::uint64_t kernels = 0;
    double modelled_s = 0.0;  // EventClock::Modelled
    std::uint64_t products = 0;
    std::uint64_t unsteady_products = 0;  // by an algorithm that does not repeat

  private:
    void run_on_its_own();

    int index_;
    std::uint64_t memory_bytes_;
    std::uint64_t seed_;
    LateQueues queues_;
    EmulatedStream default_stream_;
    std::chrono::steady_clock::time_point last_call_;
    bool ending_ = false;
    std::thread hurry_;
};

struct Machine {
    explicit Machine(const MachineOptions& wanted);
    MachineOptions options;
    std::vector<std::unique_ptr<EmulatedDevice>> devices;
    std::atomic<std::uint64_t> heuristic_queries{0};
};

std::shared_ptr<Machine> this_machine();
EmulatedDevice& this_device();  // of the calling thread
int this_device_index();
void use_device(int index);

}  // namespace trainctl::cuda_double
