// A piece of a named global tensor in some memory: what checkpoints store and load. Knows nothing about
// ranks.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "trainctl/tensor/shape.h"
#include "trainctl/tensor/tensor_view.h"

namespace trainctl {

// A rectangular part of a global tensor, in elements: the tensor-parallel part. Both shapes have the tensor's
// rank.
struct Box {
    Shape offset;
    Shape extent;

    constexpr bool operator==(const Box& other) const = default;
};

// Elements [begin, end) of a box in row-major order: the ZeRO part.
struct Range {
    std::int64_t begin = 0;
    std::int64_t end = 0;

    [[nodiscard]] constexpr std::int64_t size() const { return end - begin; }
    constexpr bool operator==(const Range& other) const = default;
};

// `view` holds exactly the elements `flat` of `box`, in that order (its own shape is free, its element count
// is not).
struct NamedSlice {
    std::string name;  // logical, for example "blocks.3.attention.q.weight.m"
    Shape global;
    Box box;
    Range flat;
    TensorView view;
};

// The box that is the whole tensor.
constexpr Box whole_box(const Shape& global) {
    Box box{global, global};
    for (int dim = 0; dim < global.rank(); ++dim) box.offset[dim] = 0;
    return box;
}

// A slice that is the whole tensor: global = view.shape.
inline NamedSlice whole_slice(std::string name, const TensorView& view) {
    return {std::move(name), view.shape, whole_box(view.shape), {0, view.elements()}, view};
}

}  // namespace trainctl
