#include "trainctl/config/registry.h"

#include <fmt/format.h>

#include <algorithm>

#include "config/key_tables.h"
#include "config/value_text.h"
#include "trainctl/base/text.h"

namespace trainctl {

Registry::Registry() {
    config_tables::add_job_keys(keys_);
    config_tables::add_training_keys(keys_);
    config_tables::add_distribution_keys(keys_);
    config_tables::add_operation_keys(keys_);
    for (const Key& key : keys_)
        if (!is_section(key.section())) sections_.push_back(key.section());
}

const Key* Registry::find(std::string_view name) const {
    const auto found =
        std::find_if(keys_.begin(), keys_.end(), [&](const Key& key) { return key.name == name; });
    return found == keys_.end() ? nullptr : &*found;
}

bool Registry::is_section(std::string_view name) const {
    return std::find(sections_.begin(), sections_.end(), name) != sections_.end();
}

std::vector<std::string> Registry::suggestions(std::string_view name) const {
    const std::size_t dot = name.rfind('.');
    const std::string section{dot == std::string_view::npos ? std::string_view{} : name.substr(0, dot)};
    const std::string leaf{dot == std::string_view::npos ? name : name.substr(dot + 1)};
    std::vector<std::string> found;
    const auto add = [&found](const std::string& candidate) {
        if (found.size() < 3 && std::find(found.begin(), found.end(), candidate) == found.end())
            found.push_back(candidate);
    };
    const auto add_leaf = [&](const std::string& wanted) {
        for (const Key& key : keys_)
            if (key.leaf() == wanted) add(key.name);
    };

    add_leaf(leaf);  // right key, wrong section
    for (const Key& key : keys_)
        if (std::find(key.aliases.begin(), key.aliases.end(), leaf) != key.aliases.end()) add(key.name);
    if (!found.empty()) return found;

    constexpr std::size_t telling = 4;  // shorter beginnings mean nothing
    for (const Key& key : keys_)
        if (key.section() == section && leaf.size() >= telling && key.leaf().rfind(leaf, 0) == 0)
            add(key.name);
    if (!found.empty()) return found;

    std::vector<std::string> here;
    std::vector<std::string> everywhere;
    for (const Key& key : keys_) {
        everywhere.push_back(key.leaf());
        if (key.section() == section) here.push_back(key.leaf());
    }
    if (const auto near = nearest_name(leaf, here)) {
        add(section + "." + *near);
    } else if (const auto far = nearest_name(leaf, everywhere)) {
        add_leaf(*far);
    } else if (const auto like = nearest_name(name, sections_)) {
        add(*like);
    }
    return found;
}

namespace {

std::string built_choices(const Key& key) {
    std::string text;
    for (const Choice& choice : key.choices)
        if (choice.availability == Availability::Built)
            text += (text.empty() ? "" : ", ") + toml_quote(choice.text);
    return text;
}

Refusal not_in_this_build(std::string what) { return {"not_in_this_build", std::move(what)}; }

std::optional<Refusal> choice_refusal(const Key& key, const std::string& text) {
    std::vector<std::string> words;
    for (const Choice& choice : key.choices) {
        words.push_back(choice.text);
        if (choice.text != text) continue;
        if (choice.availability == Availability::Built) return std::nullopt;
        return not_in_this_build(fmt::format("{} = {} is not in this build; it has {}", key.name,
                                             toml_quote(text), built_choices(key)));
    }
    const auto near = nearest_name(text, words);
    return Refusal{"unknown_choice",
                   fmt::format("{} must be {}, found {}{}", key.name, expected_text(key), toml_quote(text),
                               near ? "; did you mean " + toml_quote(*near) + "?" : "")};
}

std::optional<Refusal> bounds_refusal(const Key& key, double value, const std::string& shown) {
    if (key.bounds.contains(value)) return std::nullopt;
    return Refusal{"out_of_range", fmt::format("{} must be {}{}, found {}", key.name, key.bounds.text(),
                                               key.unit.empty() ? "" : " (" + key.unit + ")", shown)};
}

std::optional<Refusal> sources_refusal(const Key& key, const std::vector<DataSource>& sources) {
    for (const DataSource& source : sources) {
        if (source.path.empty()) return Refusal{"out_of_range", key.name + " has an empty path"};
        constexpr Bounds weights{.low = 0, .high = 1e12, .ends = Bounds::Ends::OpenLow};
        if (!weights.contains(source.weight))
            return Refusal{"out_of_range",
                           fmt::format("{}: the weight of {} must be {}, found {}", key.name,
                                       toml_quote(source.path), weights.text(), source.weight)};
    }
    return std::nullopt;
}

std::optional<Refusal> value_refusal(const Key& key, const Value& value) {
    if (const auto* whole = std::get_if<std::int64_t>(&value))
        return bounds_refusal(key, static_cast<double>(*whole), fmt::format("{}", *whole));
    if (const auto* real = std::get_if<double>(&value))
        return bounds_refusal(key, *real, fmt::format("{}", *real));
    if (const auto* word = std::get_if<std::string>(&value); word != nullptr && key.kind == Kind::Choice)
        return choice_refusal(key, *word);
    if (const auto* sources = std::get_if<std::vector<DataSource>>(&value))
        return sources_refusal(key, *sources);
    return std::nullopt;
}

}  // namespace

std::optional<Refusal> refusal(const Key& key, const Value& value) {
    if (auto refused = value_refusal(key, value)) return refused;
    if (key.availability == Availability::NotBuilt && value != key.fallback)
        return not_in_this_build(
            fmt::format("{} is not in this build; leave it out (default: {})", key.name, default_text(key)));
    return std::nullopt;
}

}  // namespace trainctl
