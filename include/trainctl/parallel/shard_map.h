// Who owns which elements and which bucket moves them: pure data, no memory, no communication.
//
// A unit of `padded` elements over D data-parallel ranks: rank r owns elements [r, r+1) x padded/D, whatever
// the bucket size. A bucket is a run of whole units, or an equal sub-range of every rank's part of one unit,
// so that every reduce-scatter is balanced.
#pragma once

#include <cstdint>
#include <vector>

#include "trainctl/model/named_slice.h"
#include "trainctl/model/unit_layout.h"

namespace trainctl {

// One piece of a bucket: elements [part_begin, part_begin + part_elements) of *every* rank's part of `unit`.
struct BucketPiece {
    UnitId unit = 0;
    std::int64_t part_begin = 0;
    std::int64_t part_elements = 0;
    bool operator==(const BucketPiece& other) const = default;
};

struct Bucket {
    std::vector<BucketPiece> pieces;  // in the order backward finishes the units
    std::int64_t part_elements = 0;   // sum over pieces: what one rank owns of the bucket
};

// What becomes of a unit larger than the bucket. Split: it is cut into sub-ranges of every rank's part, which
// bounds each message but must be packed (a sub-range of every part is not contiguous). Whole: it goes as one
// bucket, in place.
enum class LargeUnit : std::uint8_t { Split, Whole };

// Buckets in the order they can be sent: backward order (head, last block, ..., embedding).
// bucket_elements counts the whole bucket (all ranks' parts); at least one 128-element block per rank each.
std::vector<Bucket> make_buckets(const std::vector<UnitLayout>& units, int data_parallel_size,
                                 std::int64_t bucket_elements, LargeUnit large = LargeUnit::Split);

// Elements for "auto" (0): min(400 MB, gradients / 8) of the reduce dtype; otherwise megabytes x 1e6 / dtype
// size.
std::int64_t bucket_elements(double gradient_bucket_mb, std::int64_t gradient_elements, DType reduce_dtype);

// Elements [r, r+1) x padded/D of the unit.
Range owned_range(const UnitLayout& unit, int data_parallel_size, int rank);

// The logical elements of one parameter's local box that lie in a range of its unit's flat buffer.
struct TensorRange {
    int param = 0;                 // index into model_parameters()
    Range flat;                    // elements of its flattened local box
    std::int64_t unit_offset = 0;  // where the first of them lies in the unit
};

// Cuts `of_unit` into parameters, in order of offset. Alignment gaps, the padding of the unit and padded
// vocabulary rows belong to no parameter and are left out.
std::vector<TensorRange> tensor_ranges(const UnitLayout& unit, const std::vector<ParamSpec>& params,
                                       Range of_unit);

// What tensor_ranges leaves uncovered *as allocated*: elements that no layer ever writes (alignment gaps and
// the padding of the unit; padded vocabulary rows are written, with zeros), in order.
std::vector<Range> unit_gaps(const UnitLayout& unit);

// BlockFlag of every 128-element block of the unit: decay as its tensor says, none for padding (padded
// vocabulary rows included).
std::vector<std::uint8_t> block_flags(const UnitLayout& unit, const std::vector<ParamSpec>& params);

// What of a range of the unit counts in the gradient norm on this rank: everything but tensors that are not
// primary. Maximal runs, in order.
std::vector<Range> counted_ranges(const UnitLayout& unit, const std::vector<ParamSpec>& params,
                                  Range of_unit);

}  // namespace trainctl
