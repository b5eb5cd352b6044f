// Where everything of one rank lies: units, owned parts, offsets in the flat buffers, buckets. Pure data,
// fixed for the run; views of weights and gradients point into it, so it neither moves nor is copied.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "trainctl/parallel/shard_map.h"
#include "trainctl/parallel/zero.h"

namespace trainctl {

class ShardPlan {
  public:
    // Refuses modes that this build lacks with Exit::Usage.
    ShardPlan(std::vector<ParamSpec> params, const ZeroOptions& options, int rank, int ranks);
    ShardPlan(const ShardPlan&) = delete;
    ShardPlan& operator=(const ShardPlan&) = delete;
    ~ShardPlan() = default;

    [[nodiscard]] const std::vector<ParamSpec>& params() const { return params_; }
    [[nodiscard]] const std::vector<UnitLayout>& units() const { return units_; }
    [[nodiscard]] const std::vector<Bucket>& buckets() const { return buckets_; }
    [[nodiscard]] const ZeroOptions& options() const { return options_; }
    [[nodiscard]] int rank() const { return rank_; }
    [[nodiscard]] int ranks() const { return ranks_; }

    // Position of a unit in units(): a pipeline stage holds some of the model's.
    [[nodiscard]] std::size_t index(UnitId unit) const;
    // Model parts that this rank computes one by one (ParamSpec::part), and the one of a unit.
    [[nodiscard]] int model_parts() const { return static_cast<int>(first_bucket_.size()); }
    [[nodiscard]] int model_part(std::size_t index) const { return model_part_[index]; }
    // First and end of a model part's buckets in buckets().
    [[nodiscard]] std::pair<std::size_t, std::size_t> buckets_of(int part) const;
    [[nodiscard]] const UnitLayout& unit(std::size_t index) const { return units_[index]; }

    [[nodiscard]] std::int64_t part(std::size_t index) const { return units_[index].part(ranks_); }
    // This rank's r-th part of the unit.
    [[nodiscard]] Range owned(std::size_t index) const { return owned_range(units_[index], ranks_, rank_); }
    // What this rank updates and keeps optimizer state of: everything in stage 0, else its own part.
    [[nodiscard]] Range held(std::size_t index) const;

    // Element offsets of a unit in a buffer of whole units, and in a buffer of held ranges.
    [[nodiscard]] std::int64_t full_offset(std::size_t index) const { return full_offset_[index]; }
    [[nodiscard]] std::int64_t held_offset(std::size_t index) const { return held_offset_[index]; }
    [[nodiscard]] std::int64_t full_elements() const { return full_offset_.back(); }
    [[nodiscard]] std::int64_t held_elements() const { return held_offset_.back(); }

  private:
    std::vector<ParamSpec> params_;
    ZeroOptions options_;
    int rank_;
    int ranks_;
    std::vector<UnitLayout> units_;
    std::vector<int> model_part_;  // by position of the unit
    std::vector<Bucket> buckets_;
    std::vector<std::size_t> first_bucket_;  // by model part; buckets of later parts come first
    std::vector<std::int64_t> full_offset_;  // one more than units: the last is the total
    std::vector<std::int64_t> held_offset_;
};

}  // namespace trainctl
