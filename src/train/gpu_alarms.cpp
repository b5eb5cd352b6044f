#include "trainctl/train/gpu_alarms.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "trainctl/base/text.h"

namespace trainctl {
namespace {

struct XidMeaning {
    std::int64_t xid;
    LogLevel level;
    const char* text;
};

constexpr const char* reset_gpu = "reset the GPU or restart the host before it is used again";

// The driver's catalogue has some 150; these are what trainings meet.
constexpr std::array xid_meanings{
    XidMeaning{13, LogLevel::Warning,
               "a program's kernel failed on the GPU; look for an error of this run or of another one there"},
    XidMeaning{31, LogLevel::Warning,
               "a program used memory of the GPU that is not its own; look for an error of this run or of "
               "another one there"},
    XidMeaning{43, LogLevel::Warning, "the GPU stopped a program's work after an error of that program"},
    XidMeaning{45, LogLevel::Warning,
               "the GPU cleaned up after a program that ended or failed; the cause came before it"},
    XidMeaning{48, LogLevel::Error, "memory error that ECC could not correct (double bit)"},
    XidMeaning{61, LogLevel::Warning, "a controller inside the GPU stopped; reset the GPU if it comes again"},
    XidMeaning{62, LogLevel::Error, "a controller inside the GPU halted"},
    XidMeaning{63, LogLevel::Warning,
               "a bad memory row or page was recorded; it is replaced at the next reset of the GPU"},
    XidMeaning{64, LogLevel::Error, "a bad memory row or page could not be recorded"},
    XidMeaning{74, LogLevel::Error, "NVLink error; check the link and the GPU at its other end"},
    XidMeaning{79, LogLevel::Error, "the GPU has fallen off the bus; check power, heat and seating"},
    XidMeaning{94, LogLevel::Error,
               "memory error that ECC could not correct; it was contained to the program that met it"},
    XidMeaning{95, LogLevel::Error,
               "memory error that ECC could not correct nor contain; all programs on the GPU are affected"},
    XidMeaning{119, LogLevel::Error, "the GPU's system processor (GSP) does not answer"},
    XidMeaning{120, LogLevel::Error, "the GPU's system processor (GSP) failed"},
};

}  // namespace

GpuAlarm describe_xid(std::int64_t xid) {
    const auto* known = std::find_if(xid_meanings.begin(), xid_meanings.end(),
                                     [xid](const XidMeaning& meaning) { return meaning.xid == xid; });
    if (known == xid_meanings.end())
        return {LogLevel::Warning, fmt::format("Xid {}; see the driver's Xid catalogue and `dmesg`", xid)};
    std::string text = fmt::format("Xid {}: {}", xid, known->text);
    if (known->level == LogLevel::Error) text += fmt::format("; {}", reset_gpu);
    return {known->level, text};
}

bool GpuAlarms::begins(Condition condition, bool holds) {
    bool& held = holds_.at(condition);
    int& quiet = quiet_.at(condition);
    if (!holds) {
        quiet = std::min(quiet + 1, quiet_samples_before_alarm);
        if (quiet == quiet_samples_before_alarm) held = false;
        return false;
    }
    quiet = 0;
    return !std::exchange(held, true);
}

std::vector<GpuAlarm> GpuAlarms::judge(const GpuSample& now) {
    std::vector<GpuAlarm> alarms;
    const auto warn = [&](std::string text) { alarms.push_back({LogLevel::Warning, std::move(text)}); };
    const auto fault = [&](std::string text) { alarms.push_back({LogLevel::Error, std::move(text)}); };
    const std::string at = now.temperature_c ? fmt::format(" at {} C", *now.temperature_c) : "";

    if (now.temperature_c && now.slowdown_temperature_c &&
        begins(Hot, *now.temperature_c >= *now.slowdown_temperature_c)) {
        warn(fmt::format("the GPU has {} C, its hardware slows down from {} C on; check cooling",
                         *now.temperature_c, *now.slowdown_temperature_c));
    }
    if (now.throttle) {
        if (begins(Thermal, now.throttle->thermal))
            warn(fmt::format("the GPU is slowed down by heat{}; check cooling", at));
        if (begins(PowerBrake, now.throttle->power_brake))
            warn("the GPU is slowed down by the power brake: the machine's power supply is at its limit");
        if (begins(Hardware, now.throttle->hardware))
            warn(fmt::format("the GPU's hardware halves its clocks{}: heat, power brake or too high a draw",
                             at));
    }
    if (now.ecc_uncorrected) {
        // A reset sets the counter back.
        if (*now.ecc_uncorrected > uncorrected_) {
            fault(
                fmt::format("{} of the GPU's memory since its driver was loaded; {}",
                            counted(static_cast<std::int64_t>(*now.ecc_uncorrected), "uncorrected ECC error"),
                            reset_gpu));
        }
        uncorrected_ = *now.ecc_uncorrected;
    }
    if (now.row_remap_pending && begins(RemapPending, *now.row_remap_pending))
        warn("memory rows of the GPU wait to be replaced, which its next reset does");
    if (now.row_remap_failed && begins(RemapFailed, *now.row_remap_failed))
        fault("memory rows of the GPU could not be replaced: no spare is left; exchange the GPU");
    for (const std::int64_t xid : now.xids) alarms.push_back(describe_xid(xid));
    if (begins(Lost, now.lost))
        fault(fmt::format("the driver does not reach the GPU any more; {}", reset_gpu));
    return alarms;
}

}  // namespace trainctl
