// A slice as runs of consecutive global elements: what makes any layout readable from any other. Pure data.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "trainctl/model/named_slice.h"

namespace trainctl {

// `length` elements that follow one another in the row-major global tensor from `global`, and in the slice
// from `local` (counted from its flat.begin).
struct Run {
    std::int64_t global = 0;
    std::int64_t local = 0;
    std::int64_t length = 0;
};

// Walks the runs of one slice, in ascending order of both positions, without storing them: there may be one
// per row.
class RunWalker {
  public:
    RunWalker(const Shape& global, const Box& box, Range flat);
    // False at the end.
    bool next(Run& run);
    // The global element index of element `flat_index` of the box.
    [[nodiscard]] std::int64_t global_index(std::int64_t flat_index) const;

  private:
    Shape global_;
    Box box_;
    Range flat_;
    std::int64_t row_ = 1;       // elements of the box that are consecutive in the global tensor
    std::int64_t position_ = 0;  // next flat index
};

// Elements that two slices of one tensor share.
struct Overlap {
    std::int64_t a_local = 0;  // elements from the start of slice a
    std::int64_t b_local = 0;
    std::int64_t length = 0;
};
// Calls `visit(Overlap)` in ascending order.
template <class Visit>
void for_each_overlap(const Shape& global, const Box& a_box, Range a_flat, const Box& b_box, Range b_flat,
                      Visit&& visit) {
    if (a_flat.size() <= 0 || b_flat.size() <= 0) return;
    RunWalker a(global, a_box, a_flat);
    RunWalker b(global, b_box, b_flat);
    // Most pairs of a large tensor are far apart: see that without walking.
    if (a.global_index(a_flat.end - 1) < b.global_index(b_flat.begin)) return;
    if (b.global_index(b_flat.end - 1) < a.global_index(a_flat.begin)) return;
    Run run_a;
    Run run_b;
    bool more = a.next(run_a) && b.next(run_b);
    while (more) {
        const std::int64_t begin = std::max(run_a.global, run_b.global);
        const std::int64_t end = std::min(run_a.global + run_a.length, run_b.global + run_b.length);
        if (begin < end) {
            visit(
                Overlap{run_a.local + begin - run_a.global, run_b.local + begin - run_b.global, end - begin});
        }
        more = run_a.global + run_a.length <= run_b.global + run_b.length ? a.next(run_a) : b.next(run_b);
    }
}

// Exit::Internal, naming the slice, unless box and flat lie inside the tensor and the view has flat.size()
// elements.
void require_valid(const NamedSlice& slice);

}  // namespace trainctl
