#include "trainctl/config/write.h"

#include <fmt/format.h>

#include "config/json_value.h"
#include "config/value_text.h"
#include "trainctl/config/registry.h"

namespace trainctl {

namespace {

// The keys of the job that have a value and are not implied by another one.
template <class Visit>
void visit_values(const Registry& registry, const JobSpec& job, Visit visit) {
    for (const Key& key : registry.keys()) {
        if (!key.binding) continue;
        const Value value = key.current(job);
        if (std::holds_alternative<std::monostate>(value) && key.absent != Absent::Auto) continue;
        visit(key, value);
    }
}

template <class Comment>
std::string write_toml(const JobSpec& job, Comment comment) {
    const Registry registry;
    std::string text;
    std::string section;
    visit_values(registry, job, [&](const Key& key, const Value& value) {
        if (key.name == "job.steps" && job.tokens != 0) return;  // both would be a contradiction
        if (key.section() != section) {
            section = key.section();
            text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", section);
        }
        text += fmt::format("{} = {}{}\n", key.leaf(), toml_value(key, value), comment(key));
    });
    return text;
}

}  // namespace

std::string to_toml(const JobSpec& job) {
    return write_toml(job, [](const Key&) { return std::string{}; });
}

std::string to_toml(const JobSpec& job, const std::map<std::string, Origin, std::less<>>& origins) {
    return write_toml(job, [&](const Key& key) {
        const auto origin = origins.find(key.name);
        if (origin == origins.end()) return std::string{"  # default"};
        std::string text = "  # ";
        // A comment ends at the line's end: --set may hold anything.
        for (const char c : to_string(origin->second))
            text += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? ' ' : c;
        return text;
    });
}

std::string to_json(const JobSpec& job) {
    const Registry registry;
    JsonDoc json = JsonDoc::object();
    visit_values(registry, job, [&](const Key& key, const Value& value) {
        JsonDoc* at = &json;
        std::string rest = key.section();
        for (std::size_t dot = rest.find('.'); dot != std::string::npos; dot = rest.find('.')) {
            at = &(*at)[rest.substr(0, dot)];
            rest = rest.substr(dot + 1);
        }
        (*at)[rest][key.leaf()] = json_value(key, value);
    });
    return json_text(json);
}

}  // namespace trainctl
