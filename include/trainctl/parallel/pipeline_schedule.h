// In which order one stage of a pipeline computes its micro-batches and exchanges activations and gradients
// with the other stages: pure data, made once per run.
//
// Every computation gets a tick: one more than the later of the computation before it on the same stage and
// the one that makes its input. What is made at tick t travels in the exchange numbered t, which both ends
// issue behind their own computation of that tick. So all stages follow one numbering: no two of them ever
// wait for each other, even if a message is sent only when its receiver is there. A stage makes at most one
// tensor per tick, so that one exchange holds at most one message from one stage to another.
#pragma once

#include <cstdint>
#include <vector>

namespace trainctl {

enum class PipelineOrder : std::uint8_t {
    // 1F1B: after a warm-up one forward and one backward in turn, so that stage s holds at most stages - s
    // micro-batches.
    OneForwardOneBackward,
    // Interleaved 1F1B: every stage has several model parts, which shortens the idle ends of a step by their
    // number and costs as many times the messages and more micro-batches in flight.
    Interleaved,
};

enum class PipelinePass : std::uint8_t {
    Train,
    Evaluate,  // forward only
};

struct PipelineShape {
    PipelineOrder order = PipelineOrder::OneForwardOneBackward;
    int stages = 1;
    int parts = 1;  // model parts per stage: number p of stage s is number p x stages + s of the model
    int micro_batches = 1;
    PipelinePass pass = PipelinePass::Train;
};

struct PipelineMessage {
    enum class Way : std::uint8_t { Send, Receive };
    enum class Cargo : std::uint8_t { Activation, Gradient };
    Way way = Way::Send;
    Cargo cargo = Cargo::Activation;
    int peer = 0;   // stage at the other end
    int part = 0;   // of this stage: the one that made what is sent, or that waits for what is received
    int micro = 0;  // micro-batch
    bool operator==(const PipelineMessage& other) const = default;
};

struct PipelineAction {
    enum class Kind : std::uint8_t { Forward, Backward, Exchange };
    Kind kind = Kind::Forward;
    int tick = 0;   // of an exchange: its number
    int part = 0;   // forward, backward
    int micro = 0;  // forward, backward
    // Training: which of the part's states in flight this micro-batch has, from its forward to its backward.
    int slot = 0;
    std::vector<PipelineMessage> messages;  // exchange: all of them at once, in no order
    bool operator==(const PipelineAction& other) const = default;
};

// Exit::Usage with the numbers if these cannot be scheduled.
std::vector<PipelineAction> pipeline_schedule(const PipelineShape& shape, int stage);

// States that one model part has in flight at most.
int flight_slots(const std::vector<PipelineAction>& schedule);
// Micro-batches that are begun and not finished in some part of the stage, at most. They begin, and end, in
// order.
int micro_batches_held(const std::vector<PipelineAction>& schedule);

}  // namespace trainctl
