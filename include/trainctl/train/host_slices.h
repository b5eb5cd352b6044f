// State slices where the host can read and write them: checkpoints and comparisons are made there.
#pragma once

#include <span>
#include <vector>

#include "trainctl/checkpoint/load_through.h"
#include "trainctl/device/device.h"
#include "trainctl/model/named_slice.h"

namespace trainctl {

// Host memory that copies of these slices take, bytes; never so little that nothing could be loaded through
// it.
std::size_t staging_bytes(const std::vector<NamedSlice>& slices);
// The same slices with their views in `staging`, one after another.
std::vector<NamedSlice> staged_at(std::byte* staging, std::vector<NamedSlice> slices);

// How a checkpoint gets into `slices` (LoadRequest::wanted): where they lie on a device whose memory is the
// host's, which needs no staging memory; elsewhere through `staging`, by copies on `stream` that are waited
// for. All must outlive what is returned.
LoadThrough load_into(Device& device, Stream& stream, const std::vector<NamedSlice>& slices,
                      std::span<std::byte> staging);

// On a device whose memory is the host's, the slices themselves; elsewhere pinned copies, made on
// demand. Thread rule: the rank's compute thread. The device and the memory behind `slices` must
// outlive it.
class HostSlices {
  public:
    HostSlices(Device& device, Stream& stream, std::vector<NamedSlice> slices);

    // The same names and places; the views are host memory.
    [[nodiscard]] const std::vector<NamedSlice>& host() const { return host_; }
    // Device to host; waits until it is done.
    void download();

  private:
    Device& device_;
    Stream& stream_;
    std::vector<NamedSlice> slices_;
    std::vector<NamedSlice> host_;
    Buffer copies_;  // empty where the slices are host memory
};

}  // namespace trainctl
