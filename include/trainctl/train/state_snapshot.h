// The state as it was at one step boundary, in host memory, while training goes on.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "trainctl/device/device.h"
#include "trainctl/model/named_slice.h"
#include "trainctl/ops/ops.h"

namespace trainctl {

enum class SnapshotMode {
    Copy,     // into staging memory: the state may change as soon as the copy is made
    InPlace,  // where the host can read the state, it is the snapshot, and must not change while that is in
              // use; elsewhere as Copy
};

// Staging memory of fixed size, allocated once, holds one snapshot at a time. Thread rule: the rank's compute
// thread; host() may be read by any thread while complete(). Device, ops and the memory behind `slices` must
// outlive it.
class StateSnapshot {
  public:
    StateSnapshot(Device& device, Ops ops, std::vector<NamedSlice> slices, SnapshotMode mode);

    // Begins to copy what is in the slices once both streams have come to this point. From now on, work that
    // changes the slices must wait for copied() first.
    void take(Stream& compute, Stream& communication);
    // Recorded behind the newest copy; one that was never recorded counts as passed.
    [[nodiscard]] const Event& copied() const { return *copied_; }
    [[nodiscard]] bool complete() const { return copied_->complete(); }
    // Blocks until then.
    void wait() { copied_->synchronize(); }

    // The same names and places; the views are host memory.
    [[nodiscard]] const std::vector<NamedSlice>& host() const { return host_; }
    // The staging memory, for others while no snapshot is being made or read; empty in place.
    [[nodiscard]] std::span<std::byte> staging() const { return {staging_.data(), staging_.bytes()}; }

  private:
    Device& device_;
    Ops ops_;
    DeviceMemoryKind memory_;
    std::vector<NamedSlice> slices_;
    std::vector<NamedSlice> host_;
    Buffer staging_;                  // empty in place
    std::unique_ptr<Stream> copies_;  // of a device with memory of its own: beside its compute stream
    std::unique_ptr<Event> reached_;
    std::unique_ptr<Event> copied_;
};

}  // namespace trainctl
