// What this binary was built from; shown by `trainctl version` and stored in every run directory and
// checkpoint.
#pragma once

#include <string_view>

namespace trainctl {

struct BuildInfo {
    std::string_view version;  // "0.1.0", of the CMake project
    std::string_view
        revision;  // git commit, "-dirty" appended if the tree had changes; "unknown" outside git
    std::string_view build_type;  // "Release", "Debug", ...
    std::string_view compiler;    // "GNU 12.2.0"
    std::string_view flags;       // compiler flags set by the user or the preset, e.g. sanitizers
};

// Views of string literals: valid for the life of the process.
BuildInfo build_info();

}  // namespace trainctl
