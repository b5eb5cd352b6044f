// ParamSource of stages 0 to 2: whole units are always resident; publishing gathers a unit in place, and
// acquire waits for that gather.
#pragma once

#include <memory>
#include <vector>

#include "parallel/model_memory.h"
#include "parallel/published_params.h"
#include "trainctl/comm/communicator.h"

namespace trainctl {

class ResidentParams final : public PublishedParams {
  public:
    ResidentParams(const ShardPlan& plan, const ModelMemory& memory, Device& device, Communicator& data,
                   Stream& compute, Stream& communication);

    Weights acquire(UnitId unit, Stream& stream) override;
    // Nothing to fetch: the unit is resident, and its gather was issued by the update.
    void hint(UnitId next) override;
    // The update runs on the compute stream: a reader on another stream must be passed first.
    void release(UnitId unit, Stream& stream) override;

    // Every gather is in place and was waited for by the step that used its unit.
    void begin_update() override {}
    void publish(std::size_t index) override;
    [[nodiscard]] std::vector<MemoryRow> memory_table() const override { return {}; }

  private:
    const ShardPlan& plan_;
    const ModelMemory& memory_;
    Communicator& data_;
    Stream& compute_;
    Stream& communication_;
    std::vector<std::unique_ptr<Event>> filled_;  // by whoever last wrote the unit, on the stream that did
    std::unique_ptr<Event> read_;
    std::unique_ptr<Event> computed_;
};

}  // namespace trainctl
