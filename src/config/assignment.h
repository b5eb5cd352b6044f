#pragma once

#include <functional>
#include <optional>
#include <string>

#include "config/document.h"

namespace trainctl {

struct Assignment {
    std::string name;
    Node value;
    std::optional<Problem> problem;
};

// "section.key=value". The right side is a TOML value; what is none is a bare text (`--set
// model.preset=tiny`), and so is everything for keys of which `is_text` says that they hold text (`--set
// job.name=42`).
Assignment parse_assignment(const std::string& text, const std::function<bool(const std::string&)>& is_text);

}  // namespace trainctl
