// Runs micro-batches through this rank's stage in the order of its schedule: on the real device and, to plan
// memory, on the sim device. Without a pipeline there is one stage, and nothing to exchange.
//
// Who reads and writes what, and which event orders it (the host never waits):
//   compute stream   makes what is sent, frees what is overwritten   `computed`, waited for by each exchange
//   pipeline stream  sends and receives                              `done` of the exchange, waited for by
//                    the compute stream before it reads what came, before memory that was sent is released,
//                    and before the next exchange but one is issued
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "trainctl/comm/communicator.h"
#include "trainctl/model/transformer.h"
#include "trainctl/train/stage_plan.h"

namespace trainctl {

// All references outlive the executor.
struct ExecutorParts {
    Device& device;
    Transformer& model;
    Communicator& pipeline;  // the stages of this rank's pipeline
    Stream& exchange;        // carries their messages and nothing else
};

// Thread rule: the rank's compute thread; collective over the pipeline.
class StageExecutor {
  public:
    // `activation`: what travels between stages, [M,C] of the compute dtype.
    StageExecutor(const ExecutorParts& parts, const StagePlan& plan, const Shape& activation, DType dtype);

    // Loads micro-batch number `micro` of the step; called in order. It stays valid while
    // plan.micro_batches_held are in use.
    using Load = std::function<MicroBatch(int micro)>;

    // Forward and backward of all micro-batches of a step, up to the gradients. Adds the losses to loss.sum.
    void train(Runtime& runtime, const Load& load, const LossRequest& loss);
    // Forward and loss of all micro-batches of a global batch, without dropout. Adds the losses to loss.sum.
    void evaluate(Runtime& runtime, const Load& load, const LossRequest& loss);

  private:
    using Cargo = PipelineMessage::Cargo;
    struct Received {
        Cargo cargo;
        int part;
        int micro;
        int exchange;
        TensorView tensor;
    };
    struct Pending {
        int exchange;
        Event* done;
        TensorView sent;
    };
    // Exchanges that the compute stream has not waited for; what they send is still in memory.
    static constexpr std::size_t most_pending = 2;

    // Drops what an exception may have left behind.
    void forget();
    void forward(Runtime& runtime, const PipelineAction& action);
    void backward(Runtime& runtime, const PipelineAction& action, const LossRequest& loss);
    void exchange(Runtime& runtime, const PipelineAction& action);
    // Weights of the computation behind number `index` of the schedule may be gathered now.
    void hint_next(Runtime& runtime, const std::vector<PipelineAction>& schedule, std::size_t index) const;
    // What another stage sent for a computation; empty: nothing was.
    TensorView take(Runtime& runtime, Cargo cargo, const PipelineAction& action);
    // The compute stream goes on behind exchange number `exchange`.
    void wait_through(Runtime& runtime, int exchange);

    ExecutorParts parts_;
    StagePlan plan_;
    Shape activation_;
    DType dtype_;
    std::unique_ptr<Event> computed_;
    std::array<std::unique_ptr<Event>, most_pending + 1> done_;
    std::size_t next_done_ = 0;
    std::vector<MicroBatch> micros_;
    TensorView made_;  // by the newest computation, for another stage
    std::vector<Received> received_;
    std::vector<Pending> pending_;  // in order
};

}  // namespace trainctl
