#include <fmt/core.h>

#include <utility>

#include "trainctl/device/device.h"

namespace trainctl {

Buffer::~Buffer() {
    if (device_ != nullptr) device_->deallocate(data_, bytes_, memory_);
}

TensorView Buffer::view(const Shape& shape, DType dtype, std::size_t offset) const {
    TensorView view{data_ + offset, shape, dtype};
    if (offset > bytes_ || view.bytes() > bytes_ - offset) {
        fail(Exit::Internal, fmt::format("a view of {} bytes at offset {} does not fit a buffer of {} bytes",
                                         view.bytes(), offset, bytes_));
    }
    return view;
}

void Buffer::swap(Buffer& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(memory_, other.memory_);
}

}  // namespace trainctl
