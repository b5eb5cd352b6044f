// A non-owning, contiguous view of elements in some device's memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "trainctl/tensor/dtype.h"
#include "trainctl/tensor/shape.h"

namespace trainctl {

struct TensorView {
    std::byte* data = nullptr;
    Shape shape;
    DType dtype = DType::F32;

    [[nodiscard]] std::int64_t elements() const { return shape.elements(); }
    [[nodiscard]] std::size_t bytes() const { return storage_bytes(elements(), dtype); }
    // An absent optional tensor (no bias, no positions).
    [[nodiscard]] bool empty() const { return data == nullptr; }

    // Host memory only.
    template <class T>
    [[nodiscard]] T* as() const {
        return reinterpret_cast<T*>(data);
    }

    // Rows [begin, begin + count) of the first dimension.
    [[nodiscard]] TensorView rows(std::int64_t begin, std::int64_t count) const {
        TensorView view = *this;
        const std::int64_t row = shape[0] == 0 ? 0 : elements() / shape[0];
        view.data += storage_bytes(begin * row, dtype);
        view.shape[0] = count;
        return view;
    }
    // The same elements under another shape; the element counts must agree.
    [[nodiscard]] TensorView reshaped(const Shape& other) const {
        invariant(other.elements() == elements(), "reshaped: element counts differ");
        return {data, other, dtype};
    }
    // Elements [begin, begin + count) as one dimension.
    [[nodiscard]] TensorView flat(std::int64_t begin, std::int64_t count) const {
        return {data + storage_bytes(begin, dtype), Shape{count}, dtype};
    }
};

}  // namespace trainctl
