#include "trainctl/parallel/pipeline_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>

#include "trainctl/base/error.h"

namespace trainctl {
namespace {

using Kind = PipelineAction::Kind;
using Way = PipelineMessage::Way;
using Cargo = PipelineMessage::Cargo;

constexpr int not_done = 0;  // ticks count from 1

void check(const PipelineShape& shape) {
    invariant(shape.stages >= 1 && shape.parts >= 1 && shape.micro_batches >= 1,
              "a pipeline has at least one stage, one part per stage and one micro-batch");
    if (shape.parts > 1 && (shape.order != PipelineOrder::Interleaved || shape.stages == 1)) {
        fail(Exit::Usage,
             fmt::format("{} model parts on each of {} pipeline stages need the interleaved schedule and at "
                         "least 2 stages; choose parallel.pipeline_schedule = \"interleaved\", or "
                         "parallel.virtual_stages = 1",
                         shape.parts, shape.stages));
    }
    if (shape.order == PipelineOrder::Interleaved && shape.micro_batches % shape.stages != 0) {
        fail(Exit::Usage,
             fmt::format("the interleaved schedule needs a multiple of {} micro-batches per step "
                         "(parallel.pipeline_parallel_size), found {}; change "
                         "training.global_batch_size or training.micro_batch_size",
                         shape.stages, shape.micro_batches));
    }
}

// The k-th forward or backward of a stage: parts take turns, each with as many micro-batches as there are
// stages. With one part that is simply micro-batch k.
PipelineAction computation(const PipelineShape& shape, Kind kind, int k) {
    const int turn = k / shape.stages % shape.parts;
    PipelineAction action;
    action.kind = kind;
    action.part = kind == Kind::Forward ? turn : shape.parts - 1 - turn;
    action.micro = k / (shape.stages * shape.parts) * shape.stages + k % shape.stages;
    return action;
}

std::vector<PipelineAction> computations(const PipelineShape& shape, int stage) {
    const int total = shape.micro_batches * shape.parts;
    const bool trains = shape.pass == PipelinePass::Train;
    const int behind = shape.stages - 1 - stage;
    const int ahead =
        shape.order == PipelineOrder::Interleaved ? 2 * behind + (shape.parts - 1) * shape.stages : behind;
    const int warm_up = trains ? std::min(ahead, total) : total;
    std::vector<PipelineAction> actions;
    actions.reserve(2 * static_cast<std::size_t>(total));
    for (int k = 0; k < warm_up; ++k) actions.push_back(computation(shape, Kind::Forward, k));
    if (!trains) return actions;
    for (int k = warm_up; k < total; ++k) {
        actions.push_back(computation(shape, Kind::Forward, k));
        actions.push_back(computation(shape, Kind::Backward, k - warm_up));
    }
    for (int k = total - warm_up; k < total; ++k) actions.push_back(computation(shape, Kind::Backward, k));
    return actions;
}

void assign_slots(std::vector<PipelineAction>& actions, int parts) {
    std::vector<std::vector<int>> slots(static_cast<std::size_t>(parts));  // micro-batch of each; -1: free
    for (PipelineAction& action : actions) {
        std::vector<int>& taken = slots[static_cast<std::size_t>(action.part)];
        const bool begins = action.kind == Kind::Forward;
        auto slot = std::find(taken.begin(), taken.end(), begins ? -1 : action.micro);
        if (slot == taken.end()) slot = taken.insert(slot, -1);
        *slot = begins ? action.micro : -1;
        action.slot = static_cast<int>(slot - taken.begin());
    }
}

// All stages side by side, for the ticks.
class Simulation {
  public:
    explicit Simulation(const PipelineShape& shape) : shape_(shape) {
        const auto cells = static_cast<std::size_t>(shape.stages) *
                           static_cast<std::size_t>(shape.parts * shape.micro_batches);
        forward_.assign(cells, not_done);
        backward_.assign(cells, not_done);
        for (int stage = 0; stage < shape.stages; ++stage)
            stages_.push_back({computations(shape, stage), 0, 0});
        while (advance()) {
        }
        for (const Stage& stage : stages_) {
            invariant(stage.next == stage.actions.size(),
                      "a pipeline stage waits for something that is never computed");
        }
    }

    [[nodiscard]] const std::vector<PipelineAction>& actions(int stage) const {
        return stages_[static_cast<std::size_t>(stage)].actions;
    }
    // Of the input from another part; not_done: this computation has none.
    [[nodiscard]] int input_tick(int stage, const PipelineAction& action) const {
        const int part = whole_part(stage, action.part);
        if (action.kind == Kind::Forward)
            return part == 0 ? not_done : tick(forward_, part - 1, action.micro);
        return part == last_part() ? not_done : tick(backward_, part + 1, action.micro);
    }
    [[nodiscard]] bool has_input(int stage, const PipelineAction& action) const {
        return whole_part(stage, action.part) != (action.kind == Kind::Forward ? 0 : last_part());
    }
    [[nodiscard]] bool has_reader(int stage, const PipelineAction& action) const {
        return whole_part(stage, action.part) != (action.kind == Kind::Forward ? last_part() : 0);
    }

  private:
    struct Stage {
        std::vector<PipelineAction> actions;
        std::size_t next = 0;
        int tick = 0;
    };

    // Parts of the whole model, in the order in which a forward passes them.
    [[nodiscard]] int whole_part(int stage, int part) const { return part * shape_.stages + stage; }
    [[nodiscard]] int last_part() const { return shape_.stages * shape_.parts - 1; }
    [[nodiscard]] std::size_t cell(int part, int micro) const {
        return static_cast<std::size_t>(part) * static_cast<std::size_t>(shape_.micro_batches) +
               static_cast<std::size_t>(micro);
    }
    [[nodiscard]] int tick(const std::vector<int>& ticks, int part, int micro) const {
        return ticks[cell(part, micro)];
    }

    bool advance() {
        bool moved = false;
        for (int index = 0; index < shape_.stages; ++index) {
            Stage& stage = stages_[static_cast<std::size_t>(index)];
            for (; stage.next < stage.actions.size(); ++stage.next, moved = true) {
                PipelineAction& action = stage.actions[stage.next];
                const int input = input_tick(index, action);
                if (has_input(index, action) && input == not_done) break;
                stage.tick = action.tick = 1 + std::max(stage.tick, input);
                auto& ticks = action.kind == Kind::Forward ? forward_ : backward_;
                ticks[cell(whole_part(index, action.part), action.micro)] = action.tick;
            }
        }
        return moved;
    }

    PipelineShape shape_;
    std::vector<Stage> stages_;
    std::vector<int> forward_;  // ticks by part of the whole model and micro-batch
    std::vector<int> backward_;
};

}  // namespace

std::vector<PipelineAction> pipeline_schedule(const PipelineShape& shape, int stage) {
    check(shape);
    invariant(stage >= 0 && stage < shape.stages, "no such pipeline stage");
    const Simulation simulation(shape);
    std::vector<PipelineAction> actions = simulation.actions(stage);
    if (shape.pass == PipelinePass::Train) assign_slots(actions, shape.parts);

    std::map<int, std::vector<PipelineMessage>> exchanges;  // by number
    const int next = (stage + 1) % shape.stages;
    const int previous = (stage + shape.stages - 1) % shape.stages;
    for (const PipelineAction& action : actions) {
        const bool forward = action.kind == Kind::Forward;
        const Cargo cargo = forward ? Cargo::Activation : Cargo::Gradient;
        if (simulation.has_input(stage, action)) {
            exchanges[simulation.input_tick(stage, action)].push_back(
                {Way::Receive, cargo, forward ? previous : next, action.part, action.micro});
        }
        if (simulation.has_reader(stage, action)) {
            exchanges[action.tick].push_back(
                {Way::Send, cargo, forward ? next : previous, action.part, action.micro});
        }
    }

    std::vector<PipelineAction> schedule;
    auto exchange = exchanges.begin();
    const auto issue_before = [&](int tick) {
        for (; exchange != exchanges.end() && exchange->first < tick; ++exchange) {
            PipelineAction& action = schedule.emplace_back();
            action.kind = Kind::Exchange;
            action.tick = exchange->first;
            action.messages = exchange->second;
        }
    };
    for (const PipelineAction& action : actions) {
        issue_before(action.tick);
        schedule.push_back(action);
    }
    const int end = exchanges.empty() ? 0 : exchanges.rbegin()->first + 1;
    issue_before(end);
    return schedule;
}

int flight_slots(const std::vector<PipelineAction>& schedule) {
    int slots = 1;
    for (const PipelineAction& action : schedule) slots = std::max(slots, action.slot + 1);
    return slots;
}

int micro_batches_held(const std::vector<PipelineAction>& schedule) {
    std::map<int, int> uses;  // computations of a micro-batch still to come
    for (const PipelineAction& action : schedule)
        if (action.kind != Kind::Exchange) ++uses[action.micro];
    const std::map<int, int> all = uses;
    int held = 0;
    int most = 1;
    for (const PipelineAction& action : schedule) {
        if (action.kind == Kind::Exchange) continue;
        int& left = uses[action.micro];
        if (left == all.at(action.micro)) most = std::max(most, ++held);
        if (--left == 0) --held;
    }
    return most;
}

}  // namespace trainctl
