// The one table of all keys of the job file. Explicit (no self-registration) and immutable; cheap enough to
// be made where it is needed, so there is no global one.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainctl/config/key.h"

namespace trainctl {

class Registry {
  public:
    Registry();

    // In the order of the documentation.
    [[nodiscard]] std::span<const Key> keys() const { return keys_; }
    // Null if there is no such key.
    [[nodiscard]] const Key* find(std::string_view name) const;
    // "job", "model", ..., nested ones after their parents.
    [[nodiscard]] std::span<const std::string> sections() const { return sections_; }
    [[nodiscard]] bool is_section(std::string_view name) const;

    // What the writer of an unknown `name` probably meant: the same key of another section, another trainer's
    // name, a near spelling. Empty if nothing is near; never more than three.
    [[nodiscard]] std::vector<std::string> suggestions(std::string_view name) const;

  private:
    std::vector<Key> keys_;
    std::vector<std::string> sections_;
};

struct Refusal {
    std::string code;  // "out_of_range", "unknown_choice", "not_in_this_build"
    std::string what;
};

// Why `value` cannot be a value of `key`; nullopt if it can. Checks bounds, choices and what this build
// contains.
std::optional<Refusal> refusal(const Key& key, const Value& value);

}  // namespace trainctl
