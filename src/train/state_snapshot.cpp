#include "trainctl/train/state_snapshot.h"

#include <cstring>

#include "trainctl/train/host_slices.h"

namespace trainctl {
namespace {

bool copies(DeviceMemoryKind memory, SnapshotMode mode) {
    return memory == DeviceMemoryKind::Own || mode == SnapshotMode::Copy;
}

}  // namespace

StateSnapshot::StateSnapshot(Device& device, Ops ops, std::vector<NamedSlice> slices, SnapshotMode mode)
    : device_(device),
      ops_(ops),
      memory_(device.info().memory),
      slices_(std::move(slices)),
      host_(slices_),
      reached_(device.make_event()),
      copied_(device.make_event()) {
    if (!copies(memory_, mode)) return;
    staging_ = device.allocate(staging_bytes(slices_), Memory::Pinned, "checkpoint staging");
    host_ = staged_at(staging_.data(), slices_);
    // The kernel gives pages at the first touch: now, not while training stands still for the first copy.
    if (staging_.bytes() > 0) std::memset(staging_.data(), 0, staging_.bytes());
    if (memory_ == DeviceMemoryKind::Own) copies_ = device.make_stream("snapshot", StreamRole::Background);
}

void StateSnapshot::take(Stream& compute, Stream& communication) {
    Stream& stream = copies_ ? *copies_ : compute;
    for (Stream* before : {&compute, &communication}) {
        before->record(*reached_);
        stream.wait(*reached_);
    }
    for (std::size_t i = 0; i < slices_.size() && staging_.bytes() > 0; ++i) {
        const TensorView& from = slices_[i].view;
        const TensorView& to = host_[i].view;
        if (from.bytes() == 0) continue;
        // In host memory all threads of the rank copy; a GPU has engines for it.
        if (memory_ == DeviceMemoryKind::Host && from.dtype == DType::F32) {
            ops_.elementwise.cast(stream, to, from);
        } else {
            device_.copy(stream, to.data, from.data, from.bytes());
        }
    }
    stream.record(*copied_);
}

}  // namespace trainctl
