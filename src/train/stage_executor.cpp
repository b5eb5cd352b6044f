#include "trainctl/train/stage_executor.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "trainctl/train/batch_slots.h"

namespace trainctl {

namespace {

using Kind = PipelineAction::Kind;
constexpr int last_exchange = std::numeric_limits<int>::max();

}  // namespace

StageExecutor::StageExecutor(const ExecutorParts& parts, const StagePlan& plan, const Shape& activation,
                             DType dtype)
    : parts_(parts),
      plan_(plan),
      activation_(activation),
      dtype_(dtype),
      computed_(parts.device.make_event()),
      micros_(static_cast<std::size_t>(plan.micro_batches)) {
    for (auto& event : done_) event = parts.device.make_event();
    pending_.reserve(done_.size());
}

void StageExecutor::forget() {
    parts_.model.forget_flights();
    received_.clear();
    pending_.clear();
    made_ = {};
}

void StageExecutor::train(Runtime& runtime, const Load& load, const LossRequest& loss) {
    forget();
    const bool whole_step = plan_.span == PassSpan::Step;
    if (whole_step) runtime.arena.begin(PassKind::PipelineStep);
    for (std::size_t index = 0; index < plan_.training.size(); ++index) {
        const PipelineAction& action = plan_.training[index];
        switch (action.kind) {
            case Kind::Forward:
                if (action.part == 0) micros_[static_cast<std::size_t>(action.micro)] = load(action.micro);
                if (!whole_step) runtime.arena.begin(pass_kind(action.micro, plan_.micro_batches));
                forward(runtime, action);
                hint_next(runtime, plan_.training, index);
                break;
            case Kind::Backward:
                backward(runtime, action, loss);
                hint_next(runtime, plan_.training, index);
                if (!whole_step) runtime.arena.end();
                break;
            case Kind::Exchange:
                exchange(runtime, action);
                break;
        }
    }
    wait_through(runtime, last_exchange);
    if (whole_step) runtime.arena.end();
}

void StageExecutor::evaluate(Runtime& runtime, const Load& load, const LossRequest& loss) {
    forget();
    const bool whole_batch = plan_.span == PassSpan::Step;
    if (whole_batch) runtime.arena.begin(PassKind::Evaluation);
    for (std::size_t index = 0; index < plan_.evaluation.size(); ++index) {
        const PipelineAction& action = plan_.evaluation[index];
        if (action.kind == Kind::Exchange) {
            exchange(runtime, action);
            continue;
        }
        MicroBatch& micro = micros_[static_cast<std::size_t>(action.micro)];
        if (action.part == 0) micro = load(action.micro);
        if (!whole_batch) runtime.arena.begin(PassKind::Evaluation);
        const TensorView input = take(runtime, Cargo::Activation, action);
        made_ = parts_.model.evaluate(runtime, micro, action.part, input, loss);
        runtime.compute.flush();
        hint_next(runtime, plan_.evaluation, index);
        if (!whole_batch) runtime.arena.end();
    }
    wait_through(runtime, last_exchange);
    if (whole_batch) runtime.arena.end();
}

void StageExecutor::forward(Runtime& runtime, const PipelineAction& action) {
    const TensorView input = take(runtime, Cargo::Activation, action);
    made_ = parts_.model.forward(runtime, micros_[static_cast<std::size_t>(action.micro)],
                                 {action.part, action.slot}, input);
    runtime.compute.flush();
}

void StageExecutor::backward(Runtime& runtime, const PipelineAction& action, const LossRequest& loss) {
    runtime.grads.begin_micro(action.part, action.micro,
                              action.micro == plan_.micro_batches - 1 ? MicroKind::Last : MicroKind::Inner);
    const TensorView d = take(runtime, Cargo::Gradient, action);
    made_ = parts_.model.backward(runtime, micros_[static_cast<std::size_t>(action.micro)],
                                  {action.part, action.slot}, d, loss);
    runtime.compute.flush();
}

void StageExecutor::exchange(Runtime& runtime, const PipelineAction& action) {
    if (pending_.size() == most_pending) wait_through(runtime, pending_.front().exchange);
    Pending& pending = pending_.emplace_back();
    pending = {action.tick, done_[next_done_].get(), {}};
    next_done_ = (next_done_ + 1) % done_.size();
    runtime.compute.record(*computed_);
    parts_.exchange.wait(*computed_);
    {
        const CommGroup group(parts_.pipeline, parts_.exchange);
        for (const PipelineMessage& message : action.messages) {
            if (message.way == PipelineMessage::Way::Send) {
                invariant(!made_.empty(), "a pipeline stage sends what it has not computed");
                pending.sent = std::exchange(made_, {});
                parts_.pipeline.send(pending.sent, message.peer, parts_.exchange);
            } else {
                const TensorView tensor = runtime.arena.tensor(activation_, dtype_);
                parts_.pipeline.receive(tensor, message.peer, parts_.exchange);
                received_.push_back({message.cargo, message.part, message.micro, action.tick, tensor});
            }
        }
    }
    parts_.exchange.record(*pending.done);
}

void StageExecutor::hint_next(Runtime& runtime, const std::vector<PipelineAction>& schedule,
                              std::size_t index) const {
    do {
        if (++index == schedule.size()) return;
    } while (schedule[index].kind == Kind::Exchange);
    const UnitRun& units = plan_.units.parts[static_cast<std::size_t>(schedule[index].part)];
    runtime.params.hint(schedule[index].kind == Kind::Forward ? units.begin : units.end - 1);
}

TensorView StageExecutor::take(Runtime& runtime, Cargo cargo, const PipelineAction& action) {
    const auto found = std::find_if(received_.begin(), received_.end(), [&](const Received& received) {
        return received.cargo == cargo && received.part == action.part && received.micro == action.micro;
    });
    if (found == received_.end()) return {};
    const Received received = *found;
    received_.erase(found);
    wait_through(runtime, received.exchange);
    return received.tensor;
}

void StageExecutor::wait_through(Runtime& runtime, int exchange) {
    while (!pending_.empty() && pending_.front().exchange <= exchange) {
        const Pending& oldest = pending_.front();
        runtime.compute.wait(*oldest.done);
        if (!oldest.sent.empty()) runtime.arena.release(oldest.sent.data);
        pending_.erase(pending_.begin());
    }
}

}  // namespace trainctl
