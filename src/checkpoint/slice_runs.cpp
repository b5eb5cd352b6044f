#include "trainctl/checkpoint/slice_runs.h"

#include <fmt/format.h>

#include "trainctl/base/error.h"

namespace trainctl {

RunWalker::RunWalker(const Shape& global, const Box& box, Range flat)
    : global_(global), box_(box), flat_(flat), position_(flat.begin) {
    // Trailing dimensions that the box takes whole are consecutive, and one more that it takes in part.
    for (int dim = global.rank() - 1; dim >= 0; --dim) {
        row_ *= box.extent[dim];
        if (box.extent[dim] != global[dim]) break;
    }
    if (row_ == 0) position_ = flat_.end;  // an empty box
}

std::int64_t RunWalker::global_index(std::int64_t flat_index) const {
    std::int64_t index = 0;
    std::int64_t stride = 1;
    for (int dim = global_.rank() - 1; dim >= 0; --dim) {
        index += (box_.offset[dim] + flat_index % box_.extent[dim]) * stride;
        flat_index /= box_.extent[dim];
        stride *= global_[dim];
    }
    return index;
}

bool RunWalker::next(Run& run) {
    if (position_ >= flat_.end) return false;
    const std::int64_t row_end = (position_ / row_ + 1) * row_;
    run.global = global_index(position_);
    run.local = position_ - flat_.begin;
    run.length = std::min(row_end, flat_.end) - position_;
    position_ += run.length;
    return true;
}

void require_valid(const NamedSlice& slice) {
    const auto refuse = [&](const std::string& problem) {
        fail(Exit::Internal,
             fmt::format("slice of tensor \"{}\" {}: {}", slice.name, to_string(slice.global), problem));
    };
    if (slice.name.empty()) refuse("has no name");
    if (slice.box.offset.rank() != slice.global.rank() || slice.box.extent.rank() != slice.global.rank()) {
        refuse("the box has another rank");
    }
    for (int dim = 0; dim < slice.global.rank(); ++dim) {
        const bool inside = slice.box.offset[dim] >= 0 && slice.box.extent[dim] >= 0 &&
                            slice.box.offset[dim] + slice.box.extent[dim] <= slice.global[dim];
        if (!inside) refuse(fmt::format("the box leaves dimension {}", dim));
    }
    if (slice.flat.begin < 0 || slice.flat.begin > slice.flat.end ||
        slice.flat.end > slice.box.extent.elements()) {
        refuse(fmt::format("the range [{}, {}) leaves the box of {} elements", slice.flat.begin,
                           slice.flat.end, slice.box.extent.elements()));
    }
    if (slice.view.elements() != slice.flat.size()) {
        refuse(
            fmt::format("the view has {} elements, the range {}", slice.view.elements(), slice.flat.size()));
    }
}

}  // namespace trainctl
