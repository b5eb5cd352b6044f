#include "trainctl/parallel/shard_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "trainctl/ops/ops.h"

namespace trainctl {
namespace {

constexpr std::int64_t block = tensor_alignment;

std::int64_t ceil_div(std::int64_t value, std::int64_t by) { return (value + by - 1) / by; }

// A unit larger than the bucket: as few sub-ranges as fit, all of about the same size.
void split_unit(std::vector<Bucket>& buckets, UnitId unit, std::int64_t part, std::int64_t limit) {
    const std::int64_t blocks = part / block;
    const std::int64_t count = ceil_div(part, limit);
    for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t begin = blocks * i / count * block;
        const std::int64_t end = blocks * (i + 1) / count * block;
        buckets.push_back({{{unit, begin, end - begin}}, end - begin});
    }
}

}  // namespace

std::vector<Bucket> make_buckets(const std::vector<UnitLayout>& units, int data_parallel_size,
                                 std::int64_t bucket_elements, LargeUnit large) {
    invariant(data_parallel_size >= 1, "make_buckets: at least one rank");
    invariant(bucket_elements >= 1, "make_buckets: a bucket holds at least one element");
    const std::int64_t limit = std::max(block, bucket_elements / data_parallel_size / block * block);
    std::vector<Bucket> buckets;
    Bucket run;
    const auto flush = [&] {
        if (!run.pieces.empty()) buckets.push_back(std::move(run));
        run = {};
    };
    for (std::size_t left = units.size(); left > 0; --left) {
        const UnitLayout& unit = units[left - 1];
        invariant(unit.padded % (block * data_parallel_size) == 0,
                  "make_buckets: a unit is padded to 128 x data-parallel size");
        const std::int64_t part = unit.part(data_parallel_size);
        if (part == 0) continue;
        if (run.part_elements + part > limit) flush();
        if (part > limit && large == LargeUnit::Split) {
            split_unit(buckets, unit.unit, part, limit);
        } else {
            run.pieces.push_back({unit.unit, 0, part});
            run.part_elements += part;
        }
    }
    flush();
    return buckets;
}

std::int64_t bucket_elements(double gradient_bucket_mb, std::int64_t gradient_elements, DType reduce_dtype) {
    if (!(gradient_bucket_mb >= 0.0)) {
        fail(Exit::Usage,
             fmt::format("communication.gradient_bucket_mb must be \"auto\" or a size above 0 MB, "
                         "found {}; give the largest message in megabytes, for example 25",
                         gradient_bucket_mb));
    }
    constexpr double megabyte = 1e6;
    constexpr double auto_limit_mb = 400.0;
    const auto size = static_cast<double>(dtype_size(reduce_dtype));
    const bool automatic = gradient_bucket_mb == 0.0;
    const double elements = (automatic ? auto_limit_mb : gradient_bucket_mb) * megabyte / size;
    constexpr double representable = 9e18;
    std::int64_t count = elements >= representable ? std::numeric_limits<std::int64_t>::max()
                                                   : static_cast<std::int64_t>(elements);
    if (automatic) count = std::min(count, gradient_elements / 8);
    return std::max<std::int64_t>(count, 1);
}

Range owned_range(const UnitLayout& unit, int data_parallel_size, int rank) {
    const std::int64_t part = unit.part(data_parallel_size);
    return {rank * part, (rank + 1) * part};
}

std::vector<TensorRange> tensor_ranges(const UnitLayout& unit, const std::vector<ParamSpec>& params,
                                       Range of_unit) {
    std::vector<TensorRange> ranges;
    for (const ParamPlace& place : unit.places) {
        const std::int64_t logical =
            local_box(params[static_cast<std::size_t>(place.param)]).extent.elements();
        const std::int64_t begin = std::max(of_unit.begin, place.offset);
        const std::int64_t end = std::min(of_unit.end, place.offset + logical);
        if (begin >= end) continue;
        ranges.push_back({place.param, {begin - place.offset, end - place.offset}, begin});
    }
    return ranges;
}

std::vector<Range> unit_gaps(const UnitLayout& unit) {
    std::vector<Range> gaps;
    std::int64_t written = 0;
    for (const ParamPlace& place : unit.places) {
        if (place.offset > written) gaps.push_back({written, place.offset});
        written = place.offset + place.elements;
    }
    if (unit.padded > written) gaps.push_back({written, unit.padded});
    return gaps;
}

std::vector<std::uint8_t> block_flags(const UnitLayout& unit, const std::vector<ParamSpec>& params) {
    constexpr std::uint8_t undecided = 0;
    constexpr std::uint8_t decided = 0x80;
    std::vector<std::uint8_t> flags(static_cast<std::size_t>(unit.padded / block), undecided);
    for (const TensorRange& range : tensor_ranges(unit, params, {0, unit.padded})) {
        const ParamSpec& param = params[static_cast<std::size_t>(range.param)];
        std::uint8_t flag = decided;
        if (param.decay) flag |= block_decays;
        const std::int64_t last = (range.unit_offset + range.flat.size() - 1) / block;
        for (std::int64_t b = range.unit_offset / block; b <= last; ++b) {
            std::uint8_t& slot = flags[static_cast<std::size_t>(b)];
            invariant(slot == undecided || slot == flag,
                      "tensors that share a 128-element block (one fused group) must agree on weight "
                      "decay");
            slot = flag;
        }
    }
    for (std::uint8_t& flag : flags) flag &= static_cast<std::uint8_t>(~decided);
    return flags;
}

std::vector<Range> counted_ranges(const UnitLayout& unit, const std::vector<ParamSpec>& params,
                                  Range of_unit) {
    std::vector<Range> counted;
    std::int64_t begin = of_unit.begin;
    const auto count_up_to = [&](std::int64_t end) {
        if (begin < end) counted.push_back({begin, end});
    };
    for (const ParamPlace& place : unit.places) {
        if (params[static_cast<std::size_t>(place.param)].primary) continue;
        count_up_to(std::min(place.offset, of_unit.end));
        begin = std::max(begin, place.offset + place.elements);
    }
    count_up_to(of_unit.end);
    return counted;
}

}  // namespace trainctl
