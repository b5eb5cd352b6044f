#include "model/rope_table.h"

#include <cmath>
#include <vector>

namespace trainctl {
namespace {

template <class T>
std::vector<std::byte> table_bytes(const Shape& shape, double theta) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(shape.elements()) * sizeof(T));
    T* out = reinterpret_cast<T*>(bytes.data());
    const std::int64_t half = shape[1];
    for (std::int64_t position = 0; position < shape[0]; ++position) {
        for (std::int64_t pair = 0; pair < half; ++pair) {
            const double exponent = -static_cast<double>(pair) / static_cast<double>(half);
            const double angle = static_cast<double>(position) * std::pow(theta, exponent);
            *out++ = static_cast<T>(std::cos(angle));
            *out++ = static_cast<T>(std::sin(angle));
        }
    }
    return bytes;
}

}  // namespace

RopeTable::RopeTable(Device& device, const ModelSpec& model, std::int64_t length, DType dtype)
    : shape_{length, model.head_dim / 2, 2},
      dtype_(dtype),
      buffer_(
          device.allocate(storage_bytes(shape_.elements(), dtype), Memory::Device, "rotary position table")) {
    const std::vector<std::byte> bytes = dtype == DType::F64 ? table_bytes<double>(shape_, model.rope_theta)
                                                             : table_bytes<float>(shape_, model.rope_theta);
    const std::unique_ptr<Stream> stream = device.make_stream("rope table", StreamRole::Compute);
    device.copy(*stream, buffer_.data(), bytes.data(), bytes.size());
    stream->synchronize();
}

TensorView RopeTable::view(std::int64_t length) const { return buffer_.view(shape_, dtype_).rows(0, length); }

}  // namespace trainctl
