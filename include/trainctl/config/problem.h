// What is wrong with a job file: all of it is collected and reported at once.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainctl/base/exit.h"

namespace trainctl {

struct Position {
    std::string file;         // path, or "--set key=value"; empty: nowhere in particular
    std::int64_t line = 0;    // from 1; 0: the file as a whole
    std::int64_t column = 0;  // from 1, in code points

    bool operator==(const Position& other) const = default;
};

// "job.toml:3:7"; empty for nowhere.
std::string to_string(const Position& position);

enum class Severity {
    Error,
    Warning,    // legal, but probably not meant
    Unchecked,  // could not be checked here (for example: the data are on another machine)
};

struct Problem {
    Severity severity = Severity::Error;
    std::string code;  // stable, for programs: "unknown_key", "wrong_type", "out_of_range", ...
    std::string key;   // "" if it concerns no single key
    Position at;
    std::vector<Position> also;  // where the other keys of a contradiction were given
    std::string what;
    std::string hint;
    Exit exit = Exit::Usage;
};

// An error of the job file. `at` may be {}: the loader knows where each key was given.
Problem make_error(std::string code, std::string key, Position at, std::string what, std::string hint = {});

// "error: what" / "  --> job.toml:3:7", one such line for each place / "  hint: ..."; each line ends with a
// newline.
std::string format_problem(const Problem& problem);
std::string format_problems(std::span<const Problem> problems);

bool has_errors(std::span<const Problem> problems);

}  // namespace trainctl
