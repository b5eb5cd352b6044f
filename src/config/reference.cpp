#include "trainctl/config/reference.h"

#include <fmt/format.h>

#include "config/value_text.h"
#include "trainctl/config/registry.h"

namespace trainctl {

namespace {

std::string cell(const std::string& text) {
    std::string escaped;
    for (const char c : text) {
        if (c == '|') escaped += '\\';
        escaped += c;
    }
    return escaped;
}

// "integer, >= 1, samples per step; up to 2 in this build"
std::string type_and_range(const Key& key) {
    std::string text = kind_text(key);
    if (const std::string bounds = key.bounds.text(); !bounds.empty()) text += ", " + bounds;
    if (!key.unit.empty()) text += ", " + key.unit;
    return text;
}

std::string build_note(const Key& key) {
    if (key.availability == Availability::NotBuilt) return "Not in this build. ";
    std::string later;
    for (const Choice& choice : key.choices)
        if (choice.availability == Availability::NotBuilt)
            later += (later.empty() ? "" : ", ") + toml_quote(choice.text);
    if (!later.empty()) return fmt::format("Not in this build: {}. ", later);
    return {};
}

}  // namespace

std::string config_reference_markdown() {
    const Registry registry;
    std::string text =
        "# Keys of a job file\n\n"
        "Written by `trainctl config reference`; do not edit. `trainctl config explain KEY` tells the same "
        "about "
        "one key, `--set KEY=VALUE` overrides the file.\n\n"
        "On resume, a *free* key may change, a *warn* key may change when named with `--allow-change KEY`, "
        "and a "
        "*refuse* key must keep its value for the whole run.\n";
    for (const std::string& section : registry.sections()) {
        text += fmt::format(
            "\n## [{}]\n\n| key | type | default | on resume | meaning |\n|---|---|---|---|---|\n", section);
        for (const Key& key : registry.keys()) {
            if (key.section() != section) continue;
            text += fmt::format("| `{}` | {} | {} | {} | {}{} |\n", key.leaf(), cell(type_and_range(key)),
                                cell(default_text(key)), resume_name(key.resume), build_note(key),
                                cell(key.help));
        }
    }
    return text;
}

}  // namespace trainctl
