#include "model/unit_index.h"

#include "trainctl/base/error.h"

namespace trainctl {
namespace {

// "blocks.3.attention.q.weight" -> "attention.q.weight"; "head.norm.weight" -> "norm.weight".
std::string_view behind_prefix(std::string_view name) {
    std::size_t end = name.find('.');
    if (name.substr(0, end) == "blocks") end = name.find('.', end + 1);
    return name.substr(end + 1);
}

}  // namespace

UnitIndex::UnitIndex(const std::vector<ParamSpec>& params, UnitId unit) : unit_(unit) {
    for (const ParamSpec& param : params) {
        if (param.unit == unit) names_.push_back(behind_prefix(param.name));
    }
}

int UnitIndex::find(std::string_view name) const {
    for (std::size_t i = 0; i < names_.size(); ++i) {
        if (names_[i] == name) return static_cast<int>(i);
    }
    return no_place;
}

int UnitIndex::place(std::string_view name) const {
    const int found = find(name);
    if (found == no_place) {
        fail(Exit::Internal, "unit " + std::to_string(unit_) + " has no parameter " + std::string(name));
    }
    return found;
}

}  // namespace trainctl
