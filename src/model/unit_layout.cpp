#include "trainctl/model/unit_layout.h"

#include "trainctl/model/param_source.h"

namespace trainctl {
namespace {

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

std::vector<UnitLayout> unit_layouts(const std::vector<ParamSpec>& params, int data_parallel_size) {
    invariant(data_parallel_size >= 1, "unit_layouts: data-parallel size below 1");
    std::vector<UnitLayout> layouts;
    int open_group = -1;  // fused group of the parameter before, in the same unit
    for (std::size_t i = 0; i < params.size(); ++i) {
        const ParamSpec& param = params[i];
        if (layouts.empty() || layouts.back().unit != param.unit) {
            invariant(layouts.empty() || layouts.back().unit < param.unit,
                      "unit_layouts: parameters not in unit order");
            layouts.push_back(UnitLayout{param.unit, {}, 0, 0});
            open_group = -1;
        }
        UnitLayout& layout = layouts.back();
        const bool joins = param.group >= 0 && param.group == open_group;
        const std::int64_t offset = joins ? layout.elements : round_up(layout.elements, tensor_alignment);
        layout.places.push_back({static_cast<int>(i), offset, param.padded.elements()});
        layout.elements = offset + param.padded.elements();
        open_group = param.group;
    }
    for (UnitLayout& layout : layouts) {
        layout.elements = round_up(layout.elements, tensor_alignment);
        layout.padded = round_up(layout.elements, tensor_alignment * data_parallel_size);
    }
    return layouts;
}

TensorView UnitView::tensor(int place) const {
    const ParamPlace& at = layout_->places[static_cast<std::size_t>(place)];
    const ParamSpec& param = (*params_)[static_cast<std::size_t>(at.param)];
    return flat_.flat(at.offset, at.elements).reshaped(param.padded);
}

TensorView UnitView::fused(int first, int count) const {
    TensorView stacked = tensor(first);
    for (int member = first + 1; member < first + count; ++member) {
        const TensorView next = tensor(member);
        invariant(next.data == stacked.data + stacked.bytes(),
                  "fused: members of the group are not adjacent");
        invariant(next.shape.rank() == stacked.shape.rank() &&
                      (next.shape.rank() < 2 || next.shape[1] == stacked.shape[1]),
                  "fused: members of the group differ beyond dimension 0");
        stacked.shape[0] += next.shape[0];
    }
    return stacked;
}

}  // namespace trainctl
