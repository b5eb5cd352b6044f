// Slices of a tensor must tile it: equal boxes are cut into flat ranges, different boxes must not meet.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "rundir/manifest_checks.h"
#include "trainctl/base/error.h"
#include "trainctl/base/text.h"

namespace trainctl {
namespace {

using Corner = std::pair<std::vector<std::int64_t>, std::vector<std::int64_t>>;  // begin, extent

bool boxes_meet(const Corner& a, const Corner& b) {
    for (std::size_t dim = 0; dim < a.first.size(); ++dim) {
        if (a.first[dim] + a.second[dim] <= b.first[dim] || b.first[dim] + b.second[dim] <= a.first[dim])
            return false;
    }
    return true;
}

[[noreturn]] void refuse(const ManifestTensor& tensor, const std::string& where, const std::string& problem) {
    fail(Exit::BadInput, fmt::format("{}: tensor \"{}\" {}", where, tensor.name, problem));
}

}  // namespace

std::int64_t checked_elements(const std::vector<std::int64_t>& shape) {
    std::int64_t total = 1;
    for (const std::int64_t extent : shape) {
        if (extent < 0 || __builtin_mul_overflow(total, extent, &total)) return -1;
    }
    return total;
}

void require_coverage(const ManifestTensor& tensor, const std::string& where) {
    const std::int64_t total = checked_elements(tensor.shape);
    if (total < 0) refuse(tensor, where, "has an impossible shape");
    std::vector<const ManifestSlice*> slices;
    for (const ManifestSlice& slice : tensor.slices) {
        bool inside = slice.begin.size() == tensor.shape.size() && slice.extent.size() == tensor.shape.size();
        for (std::size_t dim = 0; inside && dim < tensor.shape.size(); ++dim) {
            inside = slice.begin[dim] >= 0 && slice.extent[dim] >= 0 &&
                     slice.begin[dim] <= tensor.shape[dim] &&
                     slice.extent[dim] <= tensor.shape[dim] - slice.begin[dim];
        }
        if (!inside) refuse(tensor, where, "has a slice outside of its shape");
        if (slice.flat_begin < 0 || slice.flat_begin > slice.flat_end ||
            slice.flat_end > checked_elements(slice.extent)) {
            refuse(tensor, where, "has a slice outside of its box");
        }
        if (slice.flat_begin < slice.flat_end) slices.push_back(&slice);
    }
    std::sort(slices.begin(), slices.end(), [](const ManifestSlice* a, const ManifestSlice* b) {
        return std::tie(a->begin, a->extent, a->flat_begin) < std::tie(b->begin, b->extent, b->flat_begin);
    });
    std::vector<Corner> boxes;
    std::int64_t covered = 0;
    for (std::size_t first = 0; first < slices.size();) {
        boxes.emplace_back(slices[first]->begin, slices[first]->extent);
        std::int64_t reached = 0;
        std::size_t next = first;
        for (; next < slices.size() && slices[next]->begin == boxes.back().first &&
               slices[next]->extent == boxes.back().second;
             ++next) {
            if (slices[next]->flat_begin != reached) {
                refuse(tensor, where,
                       fmt::format("{} elements {} to {} of a box",
                                   reached < slices[next]->flat_begin ? "misses" : "has twice",
                                   std::min(reached, slices[next]->flat_begin),
                                   std::max(reached, slices[next]->flat_begin)));
            }
            reached = slices[next]->flat_end;
        }
        const std::int64_t box_elements = checked_elements(boxes.back().second);
        if (reached != box_elements) {
            refuse(tensor, where, fmt::format("misses elements {} to {} of a box", reached, box_elements));
        }
        covered += box_elements;
        first = next;
    }
    for (std::size_t a = 0; a < boxes.size(); ++a) {
        for (std::size_t b = a + 1; b < boxes.size(); ++b) {
            if (boxes_meet(boxes[a], boxes[b])) refuse(tensor, where, "has overlapping boxes");
        }
    }
    if (covered != total) {
        refuse(tensor, where,
               fmt::format("is stored in part only: {} of {}", covered, counted(total, "element")));
    }
}

}  // namespace trainctl
