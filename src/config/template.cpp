// `config init`: the registry as a commented job file.
#include <fmt/format.h>

#include <map>

#include "config/value_text.h"
#include "trainctl/base/text.h"
#include "trainctl/config/model_math.h"
#include "trainctl/config/presets.h"
#include "trainctl/config/reference.h"
#include "trainctl/config/registry.h"

namespace trainctl {

namespace {

constexpr std::size_t comment_width = 100;

std::string wrapped(const std::string& text) {
    std::string lines;
    std::string line = "#";
    std::string word;
    const auto flush = [&] {
        if (line.size() + 1 + word.size() > comment_width) {
            lines += line + "\n";
            line = "#";
        }
        line += " " + word;
        word.clear();
    };
    for (const char c : text) {
        if (c == ' ') {
            flush();
        } else {
            word += c;
        }
    }
    flush();
    return lines + line + "\n";
}

// The active lines: what this preset's recipe sets.
std::map<std::string, std::string> recipe_values(const Preset& preset) {
    const Recipe& recipe = preset.recipe;
    std::map<std::string, std::string> values;
    values["job.name"] = toml_quote(preset.model.preset);
    values["job.run_dir"] = toml_quote("runs/" + preset.model.preset);
    values["job.steps"] = fmt::format("{}", recipe.steps);
    values["model.preset"] = toml_quote(preset.model.preset);
    values["data.train"] = toml_value({}, std::vector<DataSource>{{"data/train", 1.0}});
    values["training.micro_batch_size"] = fmt::format("{}", recipe.micro_batch_size);
    values["training.global_batch_size"] = fmt::format("{}", recipe.global_batch_size);
    values["training.sequence_length"] = fmt::format("{}", preset.model.max_sequence_length);
    values["optimizer.lr"] = toml_float(recipe.lr);
    values["schedule.warmup_steps"] = fmt::format("{}", recipe.warmup_steps);
    values["schedule.min_lr"] = toml_float(recipe.min_lr);
    return values;
}

std::string facts_line(const Key& key) {
    std::string text = key.help + " (";
    if (key.kind == Kind::Choice && key.choices.size() > 8) {
        text += "a name";
    } else {
        text += kind_text(key);
    }
    if (const std::string bounds = key.bounds.text(); !bounds.empty()) text += ", " + bounds;
    if (!key.unit.empty()) text += ", " + key.unit;
    return text + "; default: " + default_text(key) + ")";
}

std::string key_lines(const Key& key, const std::map<std::string, std::string>& active,
                      const Preset& preset) {
    std::string text = wrapped(facts_line(key));
    if (const auto value = active.find(key.name); value != active.end())
        return text + fmt::format("{} = {}\n", key.leaf(), value->second);
    JobSpec shape;
    shape.model = preset.model;
    const Value value = key.section() == "model" && key.binding ? key.current(shape) : key.fallback;
    const bool writable = !std::holds_alternative<std::monostate>(value) || key.absent == Absent::Auto;
    return text + fmt::format("# {} = {}\n", key.leaf(), writable ? toml_value(key, value) : "...");
}

}  // namespace

std::optional<std::string> config_template_toml(std::string_view preset_name) {
    const auto preset = find_preset(preset_name);
    if (!preset) return std::nullopt;
    const Registry registry;
    const auto active = recipe_values(*preset);
    std::string text = fmt::format(
        "# {}: {}, {} parameters.\n# Lines that begin with \"# key = \" show defaults; "
        "remove the \"#\" to change one.\n"
        "# Relative paths begin in the directory where trainctl is started, not where this file lies.\n",
        preset->model.preset, preset->about, parameter_count(preset->model));
    std::string later;
    for (const std::string& section : registry.sections()) {
        std::string body;
        for (const Key& key : registry.keys()) {
            if (key.section() != section) continue;
            if (key.availability == Availability::NotBuilt) {
                later += fmt::format("# {}: {}\n", key.name, key.help);
            } else {
                body += "\n" + key_lines(key, active, *preset);
            }
        }
        if (!body.empty()) text += fmt::format("\n[{}]{}", section, body);
    }
    return text + "\n# Known, but not in this build:\n" + later;
}

}  // namespace trainctl
