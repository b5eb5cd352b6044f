// Watches NCCL communicators: errors that NCCL reports on its own, and messages that do not end in time.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "trainctl/base/error.h"

namespace trainctl::cuda {

// Returns on success; otherwise Exit::Peer with NCCL's own account of its last error.
void check(ncclResult_t result, const char* what, ncclComm_t communicator = nullptr,
           Where where = Where::here());

// One per rank. A failure ends the watch: every communicator is aborted, so that no stream waits for ever,
// and `on_failure` hears of it once, on the watching thread; it is expected to end the process. Any thread.
class NcclWatch {
  public:
    NcclWatch(double timeout_s, std::function<void(const Error&)> on_failure);
    ~NcclWatch();
    NcclWatch(const NcclWatch&) = delete;
    NcclWatch& operator=(const NcclWatch&) = delete;

    void add(ncclComm_t communicator, std::string name);
    // Afterwards the watch does not touch it. Returns false if the watch has aborted it already.
    bool remove(ncclComm_t communicator);
    // `what` (a literal) number `sequence` of `bytes` bytes was issued to the stream just now.
    void issued(ncclComm_t communicator, cudaStream_t stream, const char* what, unsigned sequence,
                std::size_t bytes);
    // Throws what has happened.
    void rethrow();

  private:
    using Clock = std::chrono::steady_clock;
    struct Message {
        cudaEvent_t passed;
        const char* what;
        unsigned sequence;
        std::size_t bytes;
        Clock::time_point issued;
    };
    struct Watched {
        std::string name;
        std::vector<Message> under_way;  // oldest first
        Clock::time_point last_progress;
    };

    void watch(int device);
    std::string look();  // what is wrong; empty if nothing
    std::string look_at(ncclComm_t communicator, Watched& watched);

    double timeout_s_;
    std::function<void(const Error&)> on_failure_;
    std::mutex mutex_;
    std::condition_variable wake_;
    std::map<ncclComm_t, Watched> communicators_;
    std::vector<cudaEvent_t> free_events_;
    std::string failure_;
    bool ending_ = false;
    std::thread thread_;
};

}  // namespace trainctl::cuda
