#include "parallel/shard_plan.h"

#include <fmt/format.h>

#include <algorithm>

namespace trainctl {
namespace {

void check_options(const ZeroOptions& options) {
    if (options.stage < 0 || options.stage > 3) {
        fail(Exit::Usage, fmt::format("memory.zero_stage is {}; choose 0, 1, 2 or 3", options.stage));
    }
    if (options.reduce_dtype != DType::F32 && options.reduce_dtype != DType::BF16) {
        fail(Exit::Usage,
             fmt::format("communication.reduce_dtype = \"{}\" is not in this build (it has fp32 and "
                         "bf16); choose fp32, the default",
                         dtype_name(options.reduce_dtype)));
    }
    if (options.compute != DType::F32 && options.compute != DType::BF16 && options.compute != DType::F16) {
        fail(Exit::Usage,
             fmt::format("precision.compute = \"{}\" cannot hold weights; choose bf16, fp16 or fp32",
                         dtype_name(options.compute)));
    }
}

}  // namespace

ShardPlan::ShardPlan(std::vector<ParamSpec> params, const ZeroOptions& options, int rank, int ranks)
    : params_(std::move(params)), options_(options), rank_(rank), ranks_(ranks) {
    check_options(options);
    invariant(rank >= 0 && rank < ranks, "rank outside the data axis");
    invariant(!params_.empty(), "a model without parameters");
    units_ = unit_layouts(params_, ranks);
    std::int64_t full = 0;
    std::int64_t held_total = 0;
    for (std::size_t i = 0; i < units_.size(); ++i) {
        model_part_.push_back(params_[static_cast<std::size_t>(units_[i].places.front().param)].part);
        full_offset_.push_back(full);
        held_offset_.push_back(held_total);
        full += units_[i].padded;
        held_total += held(i).size();
    }
    full_offset_.push_back(full);
    held_offset_.push_back(held_total);
    // "auto" never splits a unit: its sub-ranges become ready together, so that splitting would cost copies
    // and gain no overlap. A size given by the user bounds every message.
    const LargeUnit large = options.gradient_bucket_mb == 0.0 ? LargeUnit::Whole : LargeUnit::Split;
    const std::int64_t elements = bucket_elements(options.gradient_bucket_mb, full, options.reduce_dtype);
    // The parts of a rank finish at different times: no bucket holds units of two.
    for (int part = *std::max_element(model_part_.begin(), model_part_.end()); part >= 0; --part) {
        std::vector<UnitLayout> of_part;
        for (std::size_t i = 0; i < units_.size(); ++i)
            if (model_part_[i] == part) of_part.push_back(units_[i]);
        first_bucket_.insert(first_bucket_.begin(), buckets_.size());
        for (Bucket& bucket : make_buckets(of_part, ranks_, elements, large))
            buckets_.push_back(std::move(bucket));
    }
}

std::size_t ShardPlan::index(UnitId unit) const {
    const auto found =
        std::lower_bound(units_.begin(), units_.end(), unit,
                         [](const UnitLayout& layout, UnitId wanted) { return layout.unit < wanted; });
    if (found == units_.end() || found->unit != unit) {
        fail(Exit::Internal,
             fmt::format("unit {} asked for, but this rank holds {} units from {} to {} without it", unit,
                         units_.size(), units_.front().unit, units_.back().unit));
    }
    return static_cast<std::size_t>(found - units_.begin());
}

std::pair<std::size_t, std::size_t> ShardPlan::buckets_of(int part) const {
    const auto at = static_cast<std::size_t>(part);
    return {first_bucket_[at], at == 0 ? buckets_.size() : first_bucket_[at - 1]};
}

Range ShardPlan::held(std::size_t index) const {
    return options_.stage == 0 ? Range{0, units_[index].padded} : owned(index);
}

}  // namespace trainctl
