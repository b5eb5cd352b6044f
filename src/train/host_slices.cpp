#include "trainctl/train/host_slices.h"

#include <algorithm>

namespace trainctl {
namespace {

constexpr std::size_t grain = 64;  // bytes: slices begin at cache lines

std::size_t rounded(std::size_t bytes) { return (bytes + grain - 1) / grain * grain; }

}  // namespace

std::size_t staging_bytes(const std::vector<NamedSlice>& slices) {
    std::size_t bytes = 0;
    for (const NamedSlice& slice : slices) bytes += rounded(slice.view.bytes());
    return std::max(bytes, grain);
}

std::vector<NamedSlice> staged_at(std::byte* staging, std::vector<NamedSlice> slices) {
    for (NamedSlice& slice : slices) {
        slice.view.data = staging;
        staging += rounded(slice.view.bytes());
    }
    return slices;
}

LoadThrough load_into(Device& device, Stream& stream, const std::vector<NamedSlice>& slices,
                      std::span<std::byte> staging) {
    if (device.info().memory == DeviceMemoryKind::Host) return {};
    return {staging, [&](std::span<const StagedPart> parts) {
                for (const StagedPart& part : parts)
                    device.copy(stream, slices[part.slice].view.data + part.begin, part.bytes.data(),
                                part.bytes.size());
                stream.synchronize();
            }};
}

HostSlices::HostSlices(Device& device, Stream& stream, std::vector<NamedSlice> slices)
    : device_(device), stream_(stream), slices_(std::move(slices)), host_(slices_) {
    if (device.info().memory == DeviceMemoryKind::Host) return;
    copies_ = device.allocate(staging_bytes(slices_), Memory::Pinned, "state on the host");
    host_ = staged_at(copies_.data(), slices_);
}

void HostSlices::download() {
    for (std::size_t i = 0; i < slices_.size() && copies_.bytes() > 0; ++i)
        device_.copy(stream_, host_[i].view.data, slices_[i].view.data, slices_[i].view.bytes());
    stream_.synchronize();
}

}  // namespace trainctl
