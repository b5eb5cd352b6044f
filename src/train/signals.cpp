#include "trainctl/train/signals.h"

#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>

namespace trainctl {

struct SignalThread::State {
    StopFlag& flag;
    Log& log;
    sigset_t previous_mask{};
    std::atomic<bool> ending{false};
};

namespace {

sigset_t served_signals() {
    sigset_t signals;
    sigemptyset(&signals);
    for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2}) sigaddset(&signals, signal);
    return signals;
}

}  // namespace

SignalThread::SignalThread(StopFlag& flag, Log& log) : state_(new State{flag, log, {}, {}}) {
    const sigset_t signals = served_signals();
    pthread_sigmask(SIG_BLOCK, &signals, &state_->previous_mask);
    thread_ = std::thread([state = state_.get(), signals] {
        for (;;) {
            int signal = 0;
            if (sigwait(&signals, &signal) != 0) continue;
            if (state->ending.load()) return;
            if (signal == SIGUSR2) {
                state->flag.request_save();
                continue;
            }
            if (state->flag.stop_requested()) _exit(128 + signal);
            state->flag.request_stop();
            state->log.info(
                fmt::format("{}: stopping after this step with a checkpoint; a second signal leaves at once",
                            strsignal(signal)));
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
