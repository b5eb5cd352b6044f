#include "trainctl/config/problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace trainctl {

Problem make_error(std::string code, std::string key, Position at, std::string what, std::string hint) {
    Problem problem;
    problem.code = std::move(code);
    problem.key = std::move(key);
    problem.at = std::move(at);
    problem.what = std::move(what);
    problem.hint = std::move(hint);
    return problem;
}

std::string to_string(const Position& position) {
    if (position.line == 0) return position.file;
    return fmt::format("{}:{}:{}", position.file, position.line, position.column);
}

std::string format_problem(const Problem& problem) {
    std::string text;
    switch (problem.severity) {
        case Severity::Error:
            text = "error: ";
            break;
        case Severity::Warning:
            text = "warning: ";
            break;
        case Severity::Unchecked:
            text = "warning: not checked here: ";
            break;
    }
    text += problem.what + "\n";
    if (!problem.at.file.empty()) text += "  --> " + to_string(problem.at) + "\n";
    for (const Position& place : problem.also) text += "  --> " + to_string(place) + "\n";
    if (!problem.hint.empty()) text += "  hint: " + problem.hint + "\n";
    return text;
}

std::string format_problems(std::span<const Problem> problems) {
    std::string text;
    for (const Problem& problem : problems) text += format_problem(problem);
    return text;
}

bool has_errors(std::span<const Problem> problems) {
    return std::any_of(problems.begin(), problems.end(),
                       [](const Problem& problem) { return problem.severity == Severity::Error; });
}

}  // namespace trainctl
