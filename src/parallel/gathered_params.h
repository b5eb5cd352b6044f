// ParamSource of stage 3: a rank keeps its part of every unit; whole units exist in a few slots, gathered
// ahead of use.
//
// Who reads and writes what, and which event orders it (the host never waits):
//   compute stream        writes held ranges (update)   `written` per unit, waited for by its next gather
//   communication stream  gathers a unit into its slot  `filled` per slot, waited for by acquire; `gathered`,
//   the newest
//                                                       gather of all, waited for by the next update
//   readers (any stream)  read the slot                 `read` per slot, recorded by the compute stream,
//   which has waited
//                                                       for the reader; waited for by the slot's next gather
// A unit that is still in its slot and has not been written since is not gathered again: of the blocks, the
// two with which backward begins, and the two with which the forward of a further micro-batch begins.
#pragma once

#include <memory>
#include <vector>

#include "parallel/model_memory.h"
#include "parallel/published_params.h"
#include "parallel/slot_plan.h"
#include "trainctl/comm/communicator.h"

namespace trainctl {

class GatheredParams final : public PublishedParams {
  public:
    GatheredParams(const ShardPlan& plan, const ModelMemory& memory, Device& device, Communicator& data,
                   Stream& compute, Stream& communication);

    // Gathers unless the unit is in its slot or on its way. Exit::Internal while the slot is in use by
    // another unit.
    Weights acquire(UnitId unit, Stream& stream) override;
    // Starts the gather if the slot is free; without overlap nothing is gathered before it is needed.
    void hint(UnitId next) override;
    void release(UnitId unit, Stream& stream) override;

    void begin_update() override;
    // The units with which the next forward begins are gathered at once, behind the rest of the update.
    void publish(std::size_t index) override;
    [[nodiscard]] std::vector<MemoryRow> memory_table() const override;

  private:
    struct Slot {
        std::size_t unit = nobody;  // whose weights it holds, or will when `filled` is passed
        int users = 0;              // acquired and not released
        std::unique_ptr<Event> filled;
        std::unique_ptr<Event> read;
    };
    static constexpr std::size_t nobody = static_cast<std::size_t>(-1);

    Slot& slot_of(std::size_t index);
    [[nodiscard]] TensorView weights(std::size_t index) const;
    void gather(std::size_t index);

    const ShardPlan& plan_;
    const ModelMemory& memory_;
    Communicator& data_;
    Stream& compute_;
    Stream& communication_;
    SlotPlan places_;
    Buffer slot_memory_;
    std::vector<Slot> slots_;
    std::vector<std::unique_ptr<Event>> written_;  // by position of the unit
    std::unique_ptr<Event> gathered_;
    std::unique_ptr<Event> read_elsewhere_;
    std::unique_ptr<Event> asked_;
};

}  // namespace trainctl
