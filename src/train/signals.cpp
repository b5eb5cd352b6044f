#include "trainctl/train/signals.h"

#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <string_view>
#include <utility>

namespace trainctl {

struct SignalThread::State {
    StopFlag& flag;
    Log& log;
    Announce announce;
    sigset_t previous_mask{};
    std::atomic<bool> ending{false};
};

namespace {

// `timeout`, terminals and batch systems send one signal both to a process and to its group.
constexpr std::chrono::milliseconds echo{300};

// SIGHUP (a closed terminal) unless somebody wants it ignored, as nohup does.
sigset_t served_signals() {
    sigset_t signals;
    sigemptyset(&signals);
    for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2}) sigaddset(&signals, signal);
    struct sigaction hangup {};
    sigaction(SIGHUP, nullptr, &hangup);
    if (hangup.sa_handler != SIG_IGN) sigaddset(&signals, SIGHUP);
    return signals;
}

// strsignal is not thread-safe.
std::string_view signal_name(int signal) {
    switch (signal) {
        case SIGTERM:
            return "SIGTERM";
        case SIGINT:
            return "SIGINT";
        case SIGHUP:
            return "SIGHUP";
        default:
            return "SIGUSR1";
    }
}

void answer(SignalThread::State& state, int signal) {
    state.log.info(fmt::format(
        "{}: stopping after this step, with a checkpoint if any was made; a second signal leaves at once",
        signal_name(signal)));
}

}  // namespace

SignalThread::SignalThread(StopFlag& flag, Log& log, Announce announce)
    : state_(new State{flag, log, announce, {}, {}}) {
    const sigset_t signals = served_signals();
    pthread_sigmask(SIG_BLOCK, &signals, &state_->previous_mask);
    thread_ = std::thread([state = state_.get(), signals] {
        int unanswered = 0;  // a first signal that still wants its line
        int first = 0;       // what the stop was asked for by, and when
        std::chrono::steady_clock::time_point asked;
        for (;;) {
            const timespec patience{unanswered != 0 ? 1 : 3600, 500'000'000};
            const int signal = sigtimedwait(&signals, nullptr, &patience);
            if (signal > 0 && state->ending.load()) return;
            if (signal > 0 && signal != SIGUSR2 && state->flag.stop_requested()) {
                if (signal == first && std::chrono::steady_clock::now() - asked < echo) continue;
                _exit(128 + signal);
            }
            if (signal < 0 && errno == EAGAIN && unanswered != 0)
                answer(*state, std::exchange(unanswered, 0));
            if (signal < 0) continue;
            if (signal == SIGUSR2) {
                state->flag.request_save();
                continue;
            }
            state->flag.request_stop();
            first = signal;
            asked = std::chrono::steady_clock::now();
            // mpirun passes USR1 on, but never sends it by itself.
            if (state->announce == Announce::IfItGoesOn && signal != SIGUSR1) {
                unanswered = signal;
            } else if (state->announce != Announce::Never) {
                answer(*state, signal);
            }
        }
    });
}

SignalThread::~SignalThread() {
    state_->ending.store(true);
    pthread_kill(thread_.native_handle(), SIGUSR2);  // wakes sigwait
    thread_.join();
    pthread_sigmask(SIG_SETMASK, &state_->previous_mask, nullptr);
}

}  // namespace trainctl
