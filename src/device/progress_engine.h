// The queues behind a cpu device's streams, and the one thread that advances them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "trainctl/device/captured_error.h"
#include "trainctl/device/host_stream.h"

namespace trainctl {

using Failure = std::shared_ptr<const CapturedError>;  // null: none

// One stream's FIFO. Positions count the operations ever issued, from 1.
struct StreamQueue {
    StreamQueue(std::string_view stream_name, StreamRole stream_role)
        : name(stream_name), urgent(stream_role != StreamRole::Background) {}

    const std::string name;
    const bool urgent;                        // a host that waits for it makes the progress thread hurry
    std::atomic<std::uint64_t> completed{0};  // written under the engine's mutex; read anywhere
    std::atomic<bool> failed{false};

    // Under the engine's mutex.
    std::deque<std::unique_ptr<Operation>> operations;
    std::uint64_t issued = 0;
    Failure failure;
    std::uint64_t failed_from = 0;  // positions from here on have failed
    bool closed = false;            // the stream is gone; remove when empty
};

// A place in a queue; without a queue: passed.
struct Ticket {
    std::shared_ptr<StreamQueue> queue;
    std::uint64_t position = 0;

    [[nodiscard]] bool passed() const {
        return queue == nullptr || queue->completed.load(std::memory_order_acquire) >= position;
    }
};

// All members may be called from any thread.
class ProgressEngine {
  public:
    ProgressEngine();
    // Runs everything that was issued to its end, then stops the thread.
    ~ProgressEngine();
    ProgressEngine(const ProgressEngine&) = delete;
    ProgressEngine& operator=(const ProgressEngine&) = delete;

    std::shared_ptr<StreamQueue> open(std::string_view name, StreamRole role);
    void close(StreamQueue& queue);
    void push(StreamQueue& queue, std::unique_ptr<Operation> operation);
    // Everything issued to the queue so far.
    Ticket mark(const std::shared_ptr<StreamQueue>& queue);

    // Blocks until the ticket is passed; rethrows the failure that reached it.
    void wait(const Ticket& ticket);
    // Rethrows the failure that reached a passed ticket.
    void check(const Ticket& ticket);
    // Rethrows the error given to abort(), if any.
    void check_aborted();

    // Fails all pending and later operations.
    void abort(const Error& error);
    // Called while an exception unwinds, before memory is freed that pending operations may still use: gives
    // them `grace_s` to finish, then aborts, and returns when no operation is left.
    void abandon(double grace_s) noexcept;

  private:
    void loop();
    bool visit(StreamQueue& queue);
    void relax(std::unique_lock<std::mutex>& lock, int fruitless, bool urgent);
    void fail_queue(StreamQueue& queue, const Failure& failure);  // under the mutex
    void kick();                                                  // under the mutex

    std::mutex mutex_;
    std::condition_variable wake_;  // the progress thread sleeps here
    std::condition_variable done_;  // hosts wait here
    std::vector<std::shared_ptr<StreamQueue>> queues_;
    std::vector<std::shared_ptr<StreamQueue>> heads_;  // progress thread only
    std::uint64_t pending_ = 0;                        // operations in all queues
    int waiters_ = 0;
    int urgent_waiters_ = 0;  // of them
    bool kicked_ = false;
    bool stopping_ = false;
    Failure aborted_;
    std::atomic<bool> is_aborted_{false};
    std::thread thread_;  // last: starts when everything else is ready
};

}  // namespace trainctl
