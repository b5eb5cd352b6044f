// Records the ops of a step: what each costs, and the means to make the same calls again on the same tensors,
// so that a step can be judged by the matrix products it is made of.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "trainctl/base/clock.h"
#include "trainctl/device/device.h"
#include "trainctl/ops/ops.h"

namespace trainctl {

struct OpCall {
    std::string_view name;         // "matmul.forward", "norm.backward", ...
    double flops = 0.0;            // of matrix products; 0 for other ops
    double seconds = 0.0;          // while recording, the stream idle before and after
    std::function<void()> repeat;  // issues the call again, with the same stream and tensors
};

// Passes every call on, and remembers it while recording. Recording waits for the stream around each op, so a
// recorded step is slower than others. Thread rule: the rank'"'"'s compute thread. The ops, the clock and the
// streams must outlive it.
class OpRecorder {
  public:
    OpRecorder(Ops target, Clock& clock);
    ~OpRecorder();
    OpRecorder(const OpRecorder&) = delete;
    OpRecorder& operator=(const OpRecorder&) = delete;

    [[nodiscard]] Ops ops();
    void start();
    // The calls since start(), in order. They may be repeated while the tensors'"'"' memory lives: they write
    // activations and gradients, never weights, so that the next step is not disturbed.
    std::vector<OpCall> stop();

  private:
    class Families;
    std::unique_ptr<Families> families_;
};

// The matrix products among `calls`.
std::vector<OpCall> products_of(const std::vector<OpCall>& calls);

// Total seconds, calls and FLOP by name, the dearest first.
struct OpTotal {
    std::string_view name;
    int calls = 0;
    double seconds = 0.0;
    double flops = 0.0;
};
std::vector<OpTotal> totals_by_name(const std::vector<OpCall>& calls);

}  // namespace trainctl
