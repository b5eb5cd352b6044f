// Signals of a rank (design: "Signals"): the first TERM, INT or USR1 asks for a stop after the step with a
// checkpoint; the second leaves at once with 128 + signal, nothing saved; USR2 asks for a save.
#pragma once

#include <memory>
#include <thread>

#include "trainctl/base/log.h"
#include "trainctl/train/stop_flag.h"

namespace trainctl {

// Whether the first signal is answered by a line in the log.
enum class Announce {
    AtOnce,
    // mpirun ends a failed job by the same signals that ask for a stop, and kills within a second: only a
    // rank that outlives that was asked to stop.
    IfItGoesOn,
    Never,  // another rank says it
};

// Blocks the four signals in the calling thread (and the threads it starts later: construct it first in main)
// and serves them on a thread of its own by sigwait, so that no code ever runs in a handler. The destructor
// ends the thread and restores the mask.
class SignalThread {
  public:
    SignalThread(StopFlag& flag, Log& log, Announce announce = Announce::AtOnce);
    ~SignalThread();
    SignalThread(const SignalThread&) = delete;
    SignalThread& operator=(const SignalThread&) = delete;

    struct State;  // private to the implementation

  private:
    std::unique_ptr<State> state_;
    std::thread thread_;
};

}  // namespace trainctl
