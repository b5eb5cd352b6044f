// Time as a dependency: monotonic for decisions, wall clock for display only.
#pragma once

#include <cstdint>
#include <string>

namespace trainctl {

class Clock {
  public:
    virtual ~Clock() = default;
    [[nodiscard]] virtual double monotonic_s() const = 0;
    [[nodiscard]] virtual double unix_s() const = 0;
    virtual void sleep_s(double seconds) = 0;
};

class SystemClock final : public Clock {
  public:
    [[nodiscard]] double monotonic_s() const override;
    [[nodiscard]] double unix_s() const override;
    void sleep_s(double seconds) override;
};

// "2026-11-30T07:12:01Z"
std::string utc_timestamp(double unix_s);

}  // namespace trainctl
