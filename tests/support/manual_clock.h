// A clock that stands still until it is told or asked to move: sleeping advances it at once.
#pragma once

#include <functional>
#include <mutex>

#include "trainctl/base/clock.h"

namespace trainctl::test {

// Thread-safe.
class ManualClock final : public Clock {
  public:
    [[nodiscard]] double monotonic_s() const override {
        const std::lock_guard lock(mutex_);
        return now_;
    }
    [[nodiscard]] double unix_s() const override { return 1.7e9 + monotonic_s(); }
    void sleep_s(double seconds) override {
        advance(seconds);
        if (on_sleep) on_sleep();
    }
    void advance(double seconds) {
        const std::lock_guard lock(mutex_);
        now_ += seconds;
    }

    std::function<void()> on_sleep;  // what others do meanwhile

  private:
    mutable std::mutex mutex_;
    double now_ = 1000.0;
};

}  // namespace trainctl::test
