#include "trainctl/data/source_schedule.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "trainctl/base/error.h"

namespace trainctl {
namespace {

// Samples of each source per block: the floor or the ceiling of its share, never 0.
std::vector<std::int64_t> apportion(std::span<const double> weights) {
    double sum = 0.0;
    for (const double weight : weights) {
        if (!(weight > 0.0) || !std::isfinite(weight)) {
            fail(Exit::Usage,
                 fmt::format("weights of data sources must be positive numbers, found {}; leave a source out "
                             "instead of giving it the weight 0",
                             weight));
        }
        sum += weight;
    }
    const auto slots = static_cast<double>(SourceSchedule::slots);
    std::vector<std::int64_t> counts(weights.size());
    std::vector<double> rest(weights.size());
    std::int64_t left = SourceSchedule::slots;
    for (std::size_t s = 0; s < weights.size(); ++s) {
        const double share = weights[s] / sum * slots;
        counts[s] = static_cast<std::int64_t>(share);
        rest[s] = share - static_cast<double>(counts[s]);
        left -= counts[s];
    }
    // Largest remainders get one more; a source that would get nothing comes before all others.
    std::vector<std::size_t> order(weights.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        const bool a_empty = counts[a] == 0, b_empty = counts[b] == 0;
        return a_empty != b_empty ? a_empty : rest[a] > rest[b];
    });
    // Rounding of the shares can leave at most one too many for the list; it then wraps around.
    for (std::int64_t i = 0; i < left; ++i) ++counts[order[static_cast<std::size_t>(i) % order.size()]];
    const auto starved = std::min_element(counts.begin(), counts.end());
    if (*starved < 1) {
        const auto s = static_cast<std::size_t>(starved - counts.begin());
        fail(Exit::Usage,
             fmt::format(
                 "data source {} has {:.3g} of the total weight, less than one sample in {}, and there "
                 "are more such sources than samples left for them. Join small sources (a path "
                 "may hold '*') or raise their weights",
                 s, weights[s] / sum, SourceSchedule::slots));
    }
    return counts;
}

}  // namespace

SourceSchedule::SourceSchedule(std::span<const double> weights) {
    if (weights.empty()) fail(Exit::Usage, "data.train names no source; give at least one token file");
    counts_ = apportion(weights);
    // Each slot goes to the source that is furthest behind its share: the pattern is as even as whole samples
    // allow.
    std::vector<std::int64_t> given(counts_.size(), 0);
    for (std::int64_t slot = 0; slot < slots; ++slot) {
        std::size_t next = 0;
        std::int64_t furthest = INT64_MIN;
        for (std::size_t s = 0; s < counts_.size(); ++s) {
            const std::int64_t behind = counts_[s] * (slot + 1) - given[s] * slots;
            if (given[s] < counts_[s] && behind > furthest) {
                furthest = behind;
                next = s;
            }
        }
        source_[static_cast<std::size_t>(slot)] = static_cast<std::int32_t>(next);
        before_[static_cast<std::size_t>(slot)] = static_cast<std::int32_t>(given[next]);
        ++given[next];
    }
}

}  // namespace trainctl
