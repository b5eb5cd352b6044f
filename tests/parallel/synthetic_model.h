// A model without arithmetic: gradients that are a known function of (seed, tensor, element, sample), written
// through the same protocol as a real model (units from the last to the first, a tied matrix written twice).
#pragma once

#include <cstdint>
#include <vector>

#include "trainctl/model/param_source.h"

namespace trainctl::test {

// Whole: small whole numbers, whose sums are exact in F32 (and, one by one, in BF16) in any order.
// Real: numbers that round differently in every order of adding, and that depend on the weights.
enum class GradientKind : std::uint8_t { Whole, Real };
// Early: unit 0's gradients are asked for and written first, and added to last, as a tied head does.
enum class FirstUse : std::uint8_t { Early, InOrder };

// To whom the sink is told that gradients belong. Elsewhere lies: it names a stream that did not write them,
// as if the sink waited for only one of several producers.
enum class Announce : std::uint8_t { Producers, Elsewhere };

struct SyntheticGradient {
    std::uint64_t seed = 0;  // another one per step
    GradientKind kind = GradientKind::Whole;
    std::int64_t poisoned_sample = -1;  // NaN in the first element of every tensor
    // Gradient of one sample at logical element `element` of parameter `param`; 0 in padded rows.
    [[nodiscard]] float at(const ParamSpec& param, std::int64_t element, std::int64_t sample) const;
};

// Issues one micro-batch that holds one sample: units last to first, each on one of `streams`, another one
// for every sample.
void synthetic_backward(const std::vector<ParamSpec>& params, const std::vector<UnitLayout>& units,
                        ParamSource& source, GradSink& sink, const std::vector<Stream*>& streams,
                        SyntheticGradient gradient, std::int64_t sample, FirstUse first,
                        Announce announce = Announce::Producers);

}  // namespace trainctl::test
