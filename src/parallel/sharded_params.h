// ParamSource of stages 0 to 2: whole units are always resident; acquire waits for the unit's gather.
#pragma once

#include <memory>
#include <vector>

#include "parallel/model_memory.h"

namespace trainctl {

class ShardedParams : public ParamSource {
  public:
    ShardedParams(const ShardPlan& plan, const ModelMemory& memory, Device& device, Stream& compute);

    Weights acquire(UnitId unit, Stream& stream) override;
    // Nothing to fetch: the unit is resident, and its gather was issued by the update.
    void hint(UnitId next) override;
    // The update runs on the compute stream: a reader on another stream must be passed first.
    void release(UnitId unit, Stream& stream) override;

    // Recorded by whoever last wrote the unit's weights, on the stream that did.
    Event& filled(std::size_t index) { return *filled_[index]; }

  private:
    const ShardPlan& plan_;
    const ModelMemory& memory_;
    Stream& compute_;
    std::vector<std::unique_ptr<Event>> filled_;
    std::unique_ptr<Event> read_;
};

}  // namespace trainctl
