// Documents generated from the registry of keys.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace trainctl {

// configs/REFERENCE.md: a table of keys for every section.
std::string config_reference_markdown();

// JSON Schema (draft 2020-12) of the job file, for editors.
std::string config_schema_json();

// A commented job file for a preset: recommended values set, every other key commented out at its default.
// Passes check_config() as it is. nullopt: no such preset.
std::optional<std::string> config_template_toml(std::string_view preset);

}  // namespace trainctl
