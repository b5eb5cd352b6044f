// Named model shapes with the settings their authors (or the field) train them with.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainctl/config/job_spec.h"

namespace trainctl {

// Starting values that `config init` writes; none of them is implied by `model.preset`.
struct Recipe {
    std::int64_t global_batch_size = 0;  // samples
    std::int64_t micro_batch_size = 0;
    double lr = 0.0;
    double min_lr = 0.0;
    std::int64_t warmup_steps = 0;
    std::int64_t steps = 0;
};

struct Preset {
    ModelSpec model;  // complete; model.preset is the name
    std::string about;
    Recipe recipe;
};

// In the order of size within a family.
std::vector<Preset> presets();
std::optional<Preset> find_preset(std::string_view name);
std::vector<std::string> preset_names();

}  // namespace trainctl
