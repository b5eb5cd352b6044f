// Staging of micro-batches: slots of host and device memory, one more than micro-batches are in use, so that
// the loader fills one while the device may still read the others.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "trainctl/device/arena.h"
#include "trainctl/device/device.h"
#include "trainctl/model/transformer.h"

namespace trainctl {

// Thread rule: the rank's compute thread.
class BatchSlots {
  public:
    struct Slot {
        Buffer host;    // I32 [2, b, T]: tokens, then targets
        Buffer device;  // the same
        std::unique_ptr<Event> uploaded;
    };

    // `held`: micro-batches in use at once, the newest ones.
    BatchSlots(Device& device, Stream& compute, std::int64_t micro_batch, std::int64_t length, int held);

    // The next slot, in turn; its staging may be overwritten now.
    Slot& next();
    // Host staging as I32 [b, T].
    [[nodiscard]] TensorView host_tokens(Slot& slot) const;
    [[nodiscard]] TensorView host_targets(Slot& slot) const;
    // Copies staging to the device on the compute stream.
    MicroBatch upload(Slot& slot, std::int64_t first_sample);

  private:
    Device& device_;
    Stream& compute_;
    std::int64_t micro_batch_;
    std::int64_t length_;
    std::vector<Slot> slots_;
    std::size_t next_ = 0;
};

// Micro-batch `micro` of `micros` in a step.
PassKind pass_kind(std::int64_t micro, std::int64_t micros);

}  // namespace trainctl
