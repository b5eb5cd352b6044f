#include "trainctl/base/clock.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <ctime>
#include <thread>

namespace trainctl {

double SystemClock::monotonic_s() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double SystemClock::unix_s() const {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void SystemClock::sleep_s(double seconds) {
    if (seconds > 0) std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

std::string utc_timestamp(double unix_s) {
    const auto whole = static_cast<std::time_t>(std::floor(unix_s));
    std::tm parts{};
    if (gmtime_r(&whole, &parts) == nullptr) return "invalid-time";
    return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", parts.tm_year + 1900, parts.tm_mon + 1,
                       parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
}

}  // namespace trainctl
