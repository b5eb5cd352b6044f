// One key of the job file: everything that loading, `config explain`, the JSON Schema, the generated table
// and the comparison on resume need to know about it.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "trainctl/config/job_spec.h"

namespace trainctl {

// A value of the job file in neutral form. monostate: not given ("auto", derived, or off).
// Durations are seconds in a double; choices are their text.
using Value = std::variant<std::monostate, bool, std::int64_t, double, std::string, std::vector<std::string>,
                           std::vector<DataSource>>;

enum class Kind { Boolean, Integer, Number, Text, Choice, Duration, Sources, TextList, Table, TableList };

// What it means when the key is not given (for members: when they hold zero or are empty).
enum class Absent {
    Never,     // there is a plain default; zero is a value like any other
    Auto,      // decided at start; also written "auto"
    Derived,   // computed from other keys
    Optional,  // off
    Required,  // must be given
};

// What may happen to the key between the save and the resume of a run.
enum class ResumeClass {
    Free,    // may change
    Warn,    // may change when named with --allow-change
    Refuse,  // must not change: it would be another run
};

enum class Availability { Built, NotBuilt };

struct Bounds {
    double low = -std::numeric_limits<double>::infinity();
    double high = std::numeric_limits<double>::infinity();
    enum class Ends { Closed, OpenLow, OpenHigh, Open } ends = Ends::Closed;

    [[nodiscard]] bool contains(double value) const;  // false for NaN
    // The one form in which ranges are printed: "at least 1", "between 0 and 3", "greater than 0 and less
    // than 1". Empty: no bounds.
    [[nodiscard]] std::string text() const;
};

struct Choice {
    std::string text;
    Availability availability = Availability::Built;
};

// Reads and writes the key's member of JobSpec. `write` expects the alternative of Value that the kind
// prescribes, or monostate for "not given".
struct Binding {
    std::function<Value(const JobSpec&)> read;
    std::function<void(JobSpec&, const Value&)> write;
};

struct Key {
    std::string name;  // "training.micro_batch_size"
    Kind kind = Kind::Integer;
    Bounds bounds;
    Absent absent = Absent::Never;
    std::string unit;
    ResumeClass resume = ResumeClass::Free;
    std::string help;
    std::string derived;  // Absent::Derived and Auto: from what
    std::vector<Choice> choices;
    std::vector<std::string> aliases;  // what other trainers call it; only for suggestions
    Availability availability = Availability::Built;
    Value fallback;                  // the default
    std::optional<Binding> binding;  // none: not in this build and without a member yet

    [[nodiscard]] std::string section() const;  // "training"; "precision.loss_scale" for a nested table
    [[nodiscard]] std::string leaf() const;     // "micro_batch_size"
    // The member's value, monostate where zero or empty means "not given". Keys without a member: their
    // default.
    [[nodiscard]] Value current(const JobSpec& spec) const;
};

// "integer", "number or \"auto\"", "one of \"a\", \"b\"", ...
std::string kind_text(const Key& key);
// The same with its article, for "must be ...".
std::string expected_text(const Key& key);
// The default as people read it: "2000", "auto", "derived from heads", "required", "off".
std::string default_text(const Key& key);
std::string_view resume_name(ResumeClass resume);

}  // namespace trainctl
