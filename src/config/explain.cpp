#include <fmt/format.h>

#include <algorithm>

#include "config/failed.h"
#include "config/json_value.h"
#include "config/value_text.h"
#include "trainctl/config/commands.h"
#include "trainctl/config/registry.h"

namespace trainctl {

namespace {

std::string lower(std::string text) {
    for (char& c : text)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    return text;
}

std::string build_text(const Key& key) {
    if (key.availability == Availability::NotBuilt) return "not in this build";
    std::string later;
    for (const Choice& choice : key.choices)
        if (choice.availability == Availability::NotBuilt) later += " " + toml_quote(choice.text);
    if (!later.empty()) return "not in this build:" + later;
    return {};
}

std::string full_text(const Key& key) {
    std::string text = fmt::format("{}\n  {}\n\n", key.name, key.help);
    const auto line = [&text](std::string_view name, std::string_view value) {
        if (!value.empty()) text += fmt::format("  {:<10} {}\n", name, value);
    };
    line("type", kind_text(key));
    line("range", key.bounds.text());
    line("unit", key.unit);
    line("default", default_text(key));
    switch (key.resume) {
        case ResumeClass::Free:
            line("on resume", "free: may change");
            break;
        case ResumeClass::Warn:
            line("on resume", fmt::format("warn: may change with --allow-change {}", key.name));
            break;
        case ResumeClass::Refuse:
            line("on resume", "refuse: must not change within a run");
            break;
    }
    line("build", build_text(key));
    line("also known", fmt::format("{}", fmt::join(key.aliases, ", ")));
    return text;
}

JsonDoc full_json(const Key& key) {
    JsonDoc choices = JsonDoc::array();
    for (const Choice& choice : key.choices)
        choices.push_back({{"value", choice.text}, {"built", choice.availability == Availability::Built}});
    return {{"key", key.name},
            {"type", kind_text(key)},
            {"range", key.bounds.text()},
            {"unit", key.unit},
            {"default", default_text(key)},
            {"help", key.help},
            {"on_resume", resume_name(key.resume)},
            {"built", key.availability == Availability::Built},
            {"choices", choices},
            {"also_known_as", key.aliases}};
}

bool mentions(const Key& key, const std::string& wanted) {
    if (lower(key.name).find(wanted) != std::string::npos ||
        lower(key.help).find(wanted) != std::string::npos)
        return true;
    return std::any_of(key.aliases.begin(), key.aliases.end(), [&](const std::string& alias) {
        return lower(alias).find(wanted) != std::string::npos;
    });
}

}  // namespace

CommandResult config_explain(const std::string& wanted, OutputFormat output) {
    const Registry registry;
    std::vector<const Key*> found;
    if (const Key* exact = registry.find(wanted)) {
        found.push_back(exact);
    } else {
        for (const Key& key : registry.keys())
            if (mentions(key, lower(wanted))) found.push_back(&key);
    }
    if (found.empty()) {
        const std::vector<std::string> near = registry.suggestions(wanted);
        return config_failed(
            {make_error("unknown_key", wanted, {},
                        fmt::format("no key is called or mentions {}", toml_quote(wanted)),
                        near.empty() ? "`trainctl config explain` without a name lists all keys"
                                     : fmt::format("did you mean {}?", fmt::join(near, ", or ")))},
            output);
    }
    CommandResult result;
    if (output == OutputFormat::Json) {
        JsonDoc keys = JsonDoc::array();
        for (const Key* key : found) keys.push_back(full_json(*key));
        result.out = json_text({{"ok", true}, {"exit", 0}, {"keys", keys}});
        return result;
    }
    if (found.size() == 1) {
        result.out = full_text(*found.front());
        return result;
    }
    std::size_t width = 0;
    for (const Key* key : found) width = std::max(width, key->name.size());
    for (const Key* key : found) {
        const std::string build = key->availability == Availability::NotBuilt ? " (not in this build)" : "";
        result.out +=
            fmt::format("{:<{}}  {}{}\n", key->name, width, key->help.substr(0, key->help.find(". ")), build);
    }
    return result;
}

}  // namespace trainctl
