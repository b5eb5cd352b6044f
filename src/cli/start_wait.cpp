#include "cli/start_wait.h"

#include <array>
#include <exception>
#include <vector>

#include "trainctl/checkpoint/agree.h"

namespace trainctl {
namespace {

struct Round {
    bool stop = false;     // some rank was asked to
    bool waiting = false;  // rank 0 still is
};

Round next_round(HostChannel& control, const StopFlag& stop, bool waiting) {
    std::array<std::int64_t, 2> flags{stop.stop_requested() ? 1 : 0, waiting ? 1 : 0};
    control.all_reduce(flags, Reduce::Max);
    return {flags[0] != 0, flags[1] != 0};
}

}  // namespace

bool asked_to_stop(HostChannel& control, const StopFlag& stop) {
    return next_round(control, stop, false).stop;
}

std::string wait_at_rank_0(HostChannel& control, const StopFlag& stop,
                           const std::function<std::string(const std::function<bool()>& asked)>& work) {
    std::string answer;
    std::exception_ptr problem;
    if (control.rank() == 0) {
        try {
            answer = work([&] { return next_round(control, stop, true).stop; });
        } catch (...) {  // the others are to hear of it together
            problem = std::current_exception();
        }
        next_round(control, stop, false);
    } else {
        while (next_round(control, stop, false).waiting) {
        }
    }
    return agree(
        control, [] { return std::string(); },
        [&](const std::vector<std::string>&) {
            if (problem) std::rethrow_exception(problem);
            return answer;
        });
}

}  // namespace trainctl
