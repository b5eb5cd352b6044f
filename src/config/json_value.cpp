#include "config/json_value.h"

#include "config/value_text.h"

namespace trainctl {

namespace {

JsonDoc json_sources(const std::vector<DataSource>& sources) {
    JsonDoc list = JsonDoc::array();
    for (const DataSource& source : sources)
        list.push_back({{"path", source.path}, {"weight", source.weight}});
    return list;
}

std::string severity_name(Severity severity) {
    switch (severity) {
        case Severity::Error:
            return "error";
        case Severity::Warning:
            return "warning";
        case Severity::Unchecked:
            return "not_checked";
    }
    return "error";
}

}  // namespace

JsonDoc json_value(const Key& key, const Value& value) {
    if (std::holds_alternative<std::monostate>(value))
        return key.absent == Absent::Auto ? JsonDoc("auto") : JsonDoc(nullptr);
    if (const auto* flag = std::get_if<bool>(&value)) return *flag;
    if (const auto* whole = std::get_if<std::int64_t>(&value)) return *whole;
    if (const auto* text = std::get_if<std::string>(&value)) return *text;
    if (const auto* texts = std::get_if<std::vector<std::string>>(&value)) return *texts;
    if (const auto* sources = std::get_if<std::vector<DataSource>>(&value)) return json_sources(*sources);
    const double real = std::get<double>(value);
    if (key.kind != Kind::Duration) return real;
    const std::string text = toml_duration(real);
    return text.front() == '"' ? JsonDoc(text.substr(1, text.size() - 2)) : JsonDoc(real);
}

JsonDoc json_problem(const Problem& problem) {
    JsonDoc also = JsonDoc::array();
    for (const Position& place : problem.also)
        also.push_back({{"file", place.file}, {"line", place.line}, {"column", place.column}});
    return {{"severity", severity_name(problem.severity)},
            {"code", problem.code},
            {"key", problem.key},
            {"message", problem.what},
            {"hint", problem.hint},
            {"file", problem.at.file},
            {"line", problem.at.line},
            {"column", problem.at.column},
            {"also", also},
            {"exit", static_cast<int>(problem.exit)}};
}

std::string json_text(const JsonDoc& json) {
    return json.dump(2, ' ', false, JsonDoc::error_handler_t::replace) + "\n";
}

}  // namespace trainctl
