// A ParamSource as the optimizer sees it: the optimizer writes held ranges and says so; how readers then get
// whole units is the source's affair.
#pragma once

#include <cstddef>
#include <vector>

#include "trainctl/model/param_source.h"
#include "trainctl/parallel/zero.h"

namespace trainctl {

// Thread rule: the compute thread; never waits for the device.
class PublishedParams : public ParamSource {
  public:
    // The compute stream is about to write held ranges: what it does from now on runs after whatever reads
    // them.
    virtual void begin_update() = 0;
    // The compute stream has written the held range of unit `index`. Units are published in ascending order.
    virtual void publish(std::size_t index) = 0;
    // What this source allocated beyond ModelMemory.
    [[nodiscard]] virtual std::vector<MemoryRow> memory_table() const = 0;
};

}  // namespace trainctl
