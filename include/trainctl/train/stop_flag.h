// Requests from outside: stop after this step, or save and go on. Set by a signal thread, read by the loop.
#pragma once

#include <atomic>

namespace trainctl {

// Any thread.
class StopFlag {
  public:
    void request_stop() { stop_.store(true, std::memory_order_relaxed); }
    void request_save() { save_.store(true, std::memory_order_relaxed); }
    [[nodiscard]] bool stop_requested() const { return stop_.load(std::memory_order_relaxed); }
    // Whether a save was requested since the last call.
    bool take_save_request() { return save_.exchange(false, std::memory_order_relaxed); }

  private:
    std::atomic<bool> stop_{false};
    std::atomic<bool> save_{false};
};

}  // namespace trainctl
