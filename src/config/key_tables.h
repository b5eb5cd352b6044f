// How the tables of keys are written down: builders that bind a key to a member of JobSpec by a chain of
// member pointers, so that type and conversion follow from the member.
#pragma once

#include <initializer_list>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "trainctl/base/error.h"
#include "trainctl/config/key.h"

namespace trainctl::config_tables {

inline Bounds at_least(double low) { return {.low = low}; }
inline Bounds between(double low, double high) { return {.low = low, .high = high}; }
inline Bounds above(double low) { return {.low = low, .ends = Bounds::Ends::OpenLow}; }
inline Bounds open(double low, double high) { return {.low = low, .high = high, .ends = Bounds::Ends::Open}; }
inline Bounds half_open(double low, double high) {
    return {.low = low, .high = high, .ends = Bounds::Ends::OpenHigh};
}

struct Facts {
    Bounds bounds = {};
    Absent absent = Absent::Never;
    std::string unit = {};
    ResumeClass resume = ResumeClass::Free;
    std::string help = {};
    std::string derived = {};
    std::vector<std::string> aliases = {};
    Availability availability = Availability::Built;
};

template <class Owner>
auto& follow(Owner& owner) {
    return owner;
}
template <class Owner, class First, class... Rest>
auto& follow(Owner& owner, First first, Rest... rest) {
    return follow(owner.*first, rest...);
}

// Integers of every width travel as 64 bits; everything else is an alternative of Value as it is.
template <class T>
constexpr bool is_whole = std::is_integral_v<T> && !std::is_same_v<T, bool>;

template <class T>
Value encode(const T& member) {
    if constexpr (is_whole<T>) {
        return static_cast<std::int64_t>(member);
    } else {
        return member;
    }
}

template <class T>
void decode(const Value& value, T& member) {
    if (std::holds_alternative<std::monostate>(value)) {
        member = T{};
    } else if constexpr (is_whole<T>) {
        member = static_cast<T>(std::get<std::int64_t>(value));
    } else {
        member = std::get<T>(value);
    }
}

inline Key bare_key(std::string name, Kind kind, Facts facts) {
    Key key;
    key.name = std::move(name);
    key.kind = kind;
    key.bounds = facts.bounds;
    key.absent = facts.absent;
    key.unit = std::move(facts.unit);
    key.resume = facts.resume;
    key.help = std::move(facts.help);
    key.derived = std::move(facts.derived);
    key.aliases = std::move(facts.aliases);
    key.availability = facts.availability;
    return key;
}

// A key that lives in the member reached by `path`; its default is the member's.
template <class... Path>
Key bound_key(std::string name, Kind kind, Facts facts, Path... path) {
    Key key = bare_key(std::move(name), kind, std::move(facts));
    key.binding = Binding{[=](const JobSpec& spec) { return encode(follow(spec, path...)); },
                          [=](JobSpec& spec, const Value& value) { decode(value, follow(spec, path...)); }};
    key.fallback = key.current(JobSpec{});
    return key;
}

template <class E>
struct Named {
    std::string text;
    E value;
    Availability availability = Availability::Built;
};

template <class E>
E chosen(const std::vector<Named<E>>& names, const std::string& text) {
    for (const Named<E>& name : names)
        if (name.text == text) return name.value;
    fail(Exit::Internal, "a choice outside its table: " + text);
}

template <class E>
std::string choice_name(const std::vector<Named<E>>& names, const E& value) {
    for (const Named<E>& name : names)
        if (name.value == value) return name.text;
    fail(Exit::Internal, "a member outside the table of choices, near \"" + names.front().text + "\"");
}

// A key with a fixed list of words for an enumeration (or for std::optional of one, empty when not given).
template <class E, class... Path>
Key choice_key(std::string name, std::vector<Named<E>> names, Facts facts, Path... path) {
    Key key = bare_key(std::move(name), Kind::Choice, std::move(facts));
    for (const Named<E>& each : names) key.choices.push_back({each.text, each.availability});
    key.binding =
        Binding{[=](const JobSpec& spec) -> Value {
                    const auto& member = follow(spec, path...);
                    if constexpr (std::is_same_v<std::decay_t<decltype(member)>, std::optional<E>>) {
                        return member ? Value{choice_name(names, *member)} : Value{};
                    } else {
                        return choice_name(names, member);
                    }
                },
                [=](JobSpec& spec, const Value& value) {
                    auto& member = follow(spec, path...);
                    if (std::holds_alternative<std::monostate>(value)) {
                        member = {};
                    } else {
                        member = chosen(names, std::get<std::string>(value));
                    }
                }};
    key.fallback = key.current(JobSpec{});
    return key;
}

// A key whose member is a string with a fixed list of words; the empty string means "not given".
template <class... Path>
Key word_key(std::string name, std::vector<Choice> words, Facts facts, Path... path) {
    Key key = bound_key(std::move(name), Kind::Choice, std::move(facts), path...);
    key.choices = std::move(words);
    return key;
}

// A key of something that is not built yet: explained, and refused when it differs from `fallback`.
inline Key planned_key(std::string name, Kind kind, Value fallback, Facts facts) {
    Key key = bare_key(std::move(name), kind, std::move(facts));
    key.availability = Availability::NotBuilt;
    key.fallback = std::move(fallback);
    return key;
}

void add_job_keys(std::vector<Key>& keys);           // [job] [model] [data]
void add_training_keys(std::vector<Key>& keys);      // [training] [optimizer] [schedule] [precision]
void add_distribution_keys(std::vector<Key>& keys);  // [parallel] [memory] [communication]
void add_operation_keys(
    std::vector<Key>& keys);  // [checkpoint] [fault_tolerance] [launch] [monitoring] [device]

}  // namespace trainctl::config_tables
