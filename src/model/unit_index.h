// Finds the places of a unit's parameters by their names, once, when a layer is made.
#pragma once

#include <string_view>
#include <vector>

#include "trainctl/model/param.h"

namespace trainctl {

inline constexpr int no_place = -1;

class UnitIndex {
  public:
    UnitIndex(const std::vector<ParamSpec>& params, UnitId unit);

    [[nodiscard]] UnitId unit() const { return unit_; }
    // Number within the unit of the parameter of that name behind the unit's prefix ("attention.q.weight");
    // no_place if the unit has none.
    [[nodiscard]] int find(std::string_view name) const;
    // As find, but the parameter must exist.
    [[nodiscard]] int place(std::string_view name) const;

  private:
    UnitId unit_;
    std::vector<std::string_view> names_;  // behind the unit's prefix, in order of places
};

}  // namespace trainctl
