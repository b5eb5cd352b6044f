// Where every parameter lies in its unit's flat buffer. Pure data: no memory, no ranks' meaning.
#pragma once

#include <cstdint>
#include <vector>

#include "trainctl/model/param.h"
#include "trainctl/tensor/tensor_view.h"

namespace trainctl {

inline constexpr std::int64_t tensor_alignment = 128;  // elements; also the block of the gradient norm

struct ParamPlace {
    int param = 0;            // index into model_parameters()
    std::int64_t offset = 0;  // elements from the start of the unit
    std::int64_t elements = 0;
};

struct UnitLayout {
    UnitId unit = 0;
    std::vector<ParamPlace> places;  // in order of offset
    std::int64_t elements = 0;       // end of the last tensor, rounded up to 128
    std::int64_t padded = 0;         // rounded up to 128 x data-parallel size: what is allocated

    // Equal contiguous part owned by one data-parallel rank, whatever the bucket size.
    [[nodiscard]] std::int64_t part(int data_parallel_size) const { return padded / data_parallel_size; }
};

// One layout per unit. Tensors (fused groups as one) start at multiples of 128 elements.
std::vector<UnitLayout> unit_layouts(const std::vector<ParamSpec>& params, int data_parallel_size);

}  // namespace trainctl
