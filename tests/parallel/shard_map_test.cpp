// Properties of the maps of units, buckets and shards, for any sizes, ranks and buckets.
#include "trainctl/parallel/shard_map.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <random>

#include "parallel/random_model.h"
#include "support/catch.h"
#include "trainctl/ops/ops.h"

namespace trainctl {
namespace {

using test::random_params;

constexpr std::int64_t infinite = std::numeric_limits<std::int64_t>::max();
const std::vector<std::int64_t> bucket_sizes{1, 127, 128, 129, 1000, 4096, 100000, infinite};

template <class F>
void for_random_layouts(F&& f) {
    std::mt19937 random(7);
    for (int ranks = 1; ranks <= 8; ++ranks) {
        for (int units : {1, 2, 5}) {
            for (std::int64_t largest : {30, 3000}) {
                const auto params = random_params(random, units, largest);
                const auto layouts = unit_layouts(params, ranks);
                f(params, layouts, ranks);
            }
        }
    }
}

TEST_CASE("Buckets cover every element of every part exactly once, in backward order") {
    std::int64_t seen_buckets = 0;
    for_random_layouts([&](const auto&, const auto& layouts, int ranks) {
        for (const std::int64_t size : bucket_sizes) {
            const LargeUnit large = size % 2 == 0 ? LargeUnit::Split : LargeUnit::Whole;
            std::vector<BucketPiece> expected;
            UnitId previous_unit = layouts.back().unit;
            std::int64_t next = 0;  // next uncovered element of the previous unit's part
            for (const Bucket& bucket : make_buckets(layouts, ranks, size, large)) {
                ++seen_buckets;
                REQUIRE_FALSE(bucket.pieces.empty());
                for (const BucketPiece& piece : bucket.pieces) {
                    REQUIRE(piece.part_elements > 0);
                    if (piece.unit != previous_unit) {
                        REQUIRE(piece.unit == previous_unit - 1);
                        REQUIRE(next == layouts[static_cast<std::size_t>(previous_unit)].part(ranks));
                        previous_unit = piece.unit;
                        next = 0;
                    }
                    REQUIRE(piece.part_begin == next);
                    next += piece.part_elements;
                }
            }
            REQUIRE(previous_unit == 0);
            REQUIRE(next == layouts.front().part(ranks));
        }
    });
    REQUIRE(seen_buckets > 1000);
}

TEST_CASE("Every bucket is balanced, whole blocks, and as large as allowed but not larger") {
    for_random_layouts([&](const auto&, const auto& layouts, int ranks) {
        for (const std::int64_t size : bucket_sizes) {
            for (const LargeUnit large : {LargeUnit::Split, LargeUnit::Whole}) {
                const std::int64_t limit = std::max<std::int64_t>(128, size / ranks / 128 * 128);
                const auto buckets = make_buckets(layouts, ranks, size, large);
                for (std::size_t i = 0; i < buckets.size(); ++i) {
                    const Bucket& bucket = buckets[i];
                    std::int64_t sum = 0;
                    for (const BucketPiece& piece : bucket.pieces) {
                        REQUIRE(piece.part_begin % 128 == 0);
                        REQUIRE(piece.part_elements % 128 == 0);
                        sum += piece.part_elements;
                        const auto& layout = layouts[static_cast<std::size_t>(piece.unit)];
                        const bool whole = piece.part_elements == layout.part(ranks);
                        // A bucket of several pieces is a run of whole units.
                        REQUIRE((whole || bucket.pieces.size() == 1));
                        if (large == LargeUnit::Whole) REQUIRE(whole);
                    }
                    REQUIRE(sum == bucket.part_elements);
                    if (large == LargeUnit::Split || bucket.pieces.size() > 1) REQUIRE(sum <= limit);
                    // Greedy: the next unit would not have fitted any more.
                    const bool starts_unit =
                        i + 1 < buckets.size() && buckets[i + 1].pieces[0].part_begin == 0;
                    if (starts_unit && bucket.pieces[0].part_begin == 0) {
                        const auto& next_unit =
                            layouts[static_cast<std::size_t>(buckets[i + 1].pieces[0].unit)];
                        const auto& first_unit = layouts[static_cast<std::size_t>(bucket.pieces[0].unit)];
                        const bool split = first_unit.part(ranks) > limit;
                        REQUIRE((split || sum + next_unit.part(ranks) > limit));
                    }
                }
            }
        }
    });
}

TEST_CASE("The smallest bucket moves one block per rank; the infinite one moves everything") {
    std::mt19937 random(3);
    const auto params = random_params(random, 3, 5000);
    const auto layouts = unit_layouts(params, 3);
    const std::int64_t parts =
        std::accumulate(layouts.begin(), layouts.end(), std::int64_t{0},
                        [](std::int64_t sum, const UnitLayout& unit) { return sum + unit.part(3); });
    const auto tiny = make_buckets(layouts, 3, 1);
    REQUIRE(static_cast<std::int64_t>(tiny.size()) == parts / 128);
    for (const Bucket& bucket : tiny) REQUIRE(bucket.part_elements == 128);
    const auto all = make_buckets(layouts, 3, infinite);
    REQUIRE(all.size() == 1);
    REQUIRE(all[0].pieces.size() == 3);
    REQUIRE(all[0].part_elements == parts);
}

TEST_CASE("The owner of an element does not depend on the bucket size") {
    for_random_layouts([&](const auto&, const auto& layouts, int ranks) {
        for (const std::int64_t size : bucket_sizes) {
            // What a reduce-scatter of the bucket leaves at rank r, element by element of the unit.
            std::map<UnitId, std::vector<int>> owner;
            for (const UnitLayout& unit : layouts)
                owner[unit.unit].assign(static_cast<std::size_t>(unit.padded), -1);
            for (const Bucket& bucket : make_buckets(layouts, ranks, size)) {
                for (const BucketPiece& piece : bucket.pieces) {
                    const auto& unit = layouts[static_cast<std::size_t>(piece.unit)];
                    for (int rank = 0; rank < ranks; ++rank) {
                        const std::int64_t begin = rank * unit.part(ranks) + piece.part_begin;
                        const auto from = owner[piece.unit].begin() + begin;
                        std::fill(from, from + piece.part_elements, rank);
                    }
                }
            }
            bool equal_parts = true;
            for (const UnitLayout& unit : layouts) {
                for (int rank = 0; rank < ranks; ++rank) {
                    const Range owned = owned_range(unit, ranks, rank);
                    for (std::int64_t e = owned.begin; e < owned.end; ++e)
                        equal_parts &= owner[unit.unit][static_cast<std::size_t>(e)] == rank;
                }
            }
            REQUIRE(equal_parts);
        }
    });
}

// Every parameter's logical elements, put together from the ranks' parts of one layout.
using Named = std::map<std::string, std::vector<float>>;

std::vector<std::vector<std::vector<float>>> cut(const Named& tensors, const std::vector<ParamSpec>& params,
                                                 int ranks) {
    std::vector<std::vector<std::vector<float>>> parts(static_cast<std::size_t>(ranks));
    for (const UnitLayout& unit : unit_layouts(params, ranks)) {
        for (int rank = 0; rank < ranks; ++rank) {
            const Range owned = owned_range(unit, ranks, rank);
            std::vector<float> part(static_cast<std::size_t>(owned.size()), 0.0F);
            for (const TensorRange& range : tensor_ranges(unit, params, owned)) {
                const auto& tensor = tensors.at(params[static_cast<std::size_t>(range.param)].name);
                std::copy(tensor.begin() + range.flat.begin, tensor.begin() + range.flat.end,
                          part.begin() + (range.unit_offset - owned.begin));
            }
            parts[static_cast<std::size_t>(rank)].push_back(std::move(part));
        }
    }
    return parts;
}

Named join(const std::vector<std::vector<std::vector<float>>>& parts, const std::vector<ParamSpec>& params) {
    const int ranks = static_cast<int>(parts.size());
    Named tensors;
    std::map<std::string, std::vector<int>> written;
    for (const ParamSpec& param : params) {
        tensors[param.name].assign(static_cast<std::size_t>(param.global.elements()), -1.0F);
        written[param.name].assign(static_cast<std::size_t>(param.global.elements()), 0);
    }
    std::size_t index = 0;
    for (const UnitLayout& unit : unit_layouts(params, ranks)) {
        for (int rank = 0; rank < ranks; ++rank) {
            const Range owned = owned_range(unit, ranks, rank);
            const auto& part = parts[static_cast<std::size_t>(rank)][index];
            for (const TensorRange& range : tensor_ranges(unit, params, owned)) {
                const std::string& name = params[static_cast<std::size_t>(range.param)].name;
                for (std::int64_t e = 0; e < range.flat.size(); ++e) {
                    const auto at = static_cast<std::size_t>(range.flat.begin + e);
                    tensors[name][at] = part[static_cast<std::size_t>(range.unit_offset - owned.begin + e)];
                    ++written[name][at];
                }
            }
        }
        ++index;
    }
    bool once = true;
    for (const auto& [name, counts] : written)
        once &= std::all_of(counts.begin(), counts.end(), [](int count) { return count == 1; });
    REQUIRE(once);
    return tensors;
}

TEST_CASE("Every layout reassembles into every other") {
    std::mt19937 random(11);
    const auto params = random_params(random, 4, 2000);
    Named original;
    float value = 1.0F;
    for (const ParamSpec& param : params) {
        auto& tensor = original[param.name];
        tensor.resize(static_cast<std::size_t>(param.global.elements()));
        for (float& element : tensor) element = value++;
    }
    Named current = original;
    for (const int ranks : {1, 2, 3, 4, 5, 7, 8, 6, 1}) {
        current = join(cut(current, params, ranks), params);
        REQUIRE(current == original);
    }
}

TEST_CASE("Gaps and tensors cover a unit exactly once") {
    bool saw_gap = false;
    for_random_layouts([&](const auto&, const auto& layouts, int) {
        for (const UnitLayout& unit : layouts) {
            std::vector<int> covered(static_cast<std::size_t>(unit.padded), 0);
            const auto add = [&](std::int64_t begin, std::int64_t end) {
                for (std::int64_t e = begin; e < end; ++e) ++covered[static_cast<std::size_t>(e)];
            };
            for (const ParamPlace& place : unit.places) add(place.offset, place.offset + place.elements);
            for (const Range& gap : unit_gaps(unit)) {
                saw_gap = true;
                REQUIRE(gap.size() > 0);
                add(gap.begin, gap.end);
            }
            REQUIRE(std::all_of(covered.begin(), covered.end(), [](int count) { return count == 1; }));
        }
    });
    REQUIRE(saw_gap);
}

TEST_CASE("Weight decay flags follow the tensors and spare padding") {
    ParamSpec table;
    table.name = "table";
    table.global = Shape{97, 32};
    table.padded = Shape{128, 32};
    ParamSpec bias;
    bias.name = "bias";
    bias.global = bias.padded = Shape{130};
    bias.decay = false;
    const std::vector<ParamSpec> params{table, bias};
    const UnitLayout unit = unit_layouts(params, 3)[0];
    const auto flags = block_flags(unit, params);
    REQUIRE(static_cast<std::int64_t>(flags.size()) == unit.padded / 128);
    for (std::size_t b = 0; b < flags.size(); ++b) {
        const bool decays = b * 128 < 97 * 32;  // the padded rows 97..127 and all after them do not
        REQUIRE(flags[b] == (decays ? block_decays : 0));
    }
    // Two tensors that share a block cannot disagree.
    ParamSpec a = bias;
    ParamSpec b = bias;
    a.group = b.group = 0;
    b.decay = true;
    const std::vector<ParamSpec> mixed{a, b};
    REQUIRE_THROWS_AS(block_flags(unit_layouts(mixed, 1)[0], mixed), Error);
}

TEST_CASE("Every element is counted in the norm unless another replica counts its tensor") {
    std::mt19937 random(5);
    for_random_layouts([&](const auto& params, const auto& layouts, int ranks) {
        std::vector<ParamSpec> some = params;
        for (ParamSpec& param : some) param.primary = random() % 3 != 0;  // within fused groups too
        bool right = true;
        for (const UnitLayout& unit : layouts) {
            std::vector<int> counted(static_cast<std::size_t>(unit.padded), 0);
            for (int rank = 0; rank < ranks; ++rank) {
                for (const Range& range : counted_ranges(unit, some, owned_range(unit, ranks, rank)))
                    for (std::int64_t e = range.begin; e < range.end; ++e)
                        ++counted[static_cast<std::size_t>(e)];
            }
            std::vector<int> wanted(counted.size(), 1);
            for (const ParamPlace& place : unit.places) {
                if (some[static_cast<std::size_t>(place.param)].primary) continue;
                std::fill_n(wanted.begin() + place.offset, place.elements, 0);
            }
            right &= counted == wanted;
        }
        REQUIRE(right);
    });
}

TEST_CASE("Bucket sizes in megabytes of the reduce dtype") {
    REQUIRE(bucket_elements(25.0, 1000, DType::F32) == 6250000);
    REQUIRE(bucket_elements(25.0, 1000, DType::BF16) == 12500000);
    REQUIRE(bucket_elements(0.0, 124439808, DType::F32) == 124439808 / 8);
    REQUIRE(bucket_elements(0.0, 7000000000, DType::F32) == 100000000);
    REQUIRE(bucket_elements(0.0, 7000000000, DType::BF16) == 200000000);
    REQUIRE(bucket_elements(0.0, 3, DType::F32) == 1);
    REQUIRE(bucket_elements(1e-9, 3, DType::F32) == 1);
    REQUIRE(bucket_elements(std::numeric_limits<double>::infinity(), 3, DType::F32) == infinite);
    REQUIRE_THROWS_AS(bucket_elements(-1.0, 3, DType::F32), Error);
    REQUIRE_THROWS_AS(bucket_elements(std::numeric_limits<double>::quiet_NaN(), 3, DType::F32), Error);
}

}  // namespace
}  // namespace trainctl
