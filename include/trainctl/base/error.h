// The one exception type of the project. Its text says what was expected, what was found and what to do next.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "trainctl/base/exit.h"

namespace trainctl {

// A place in our sources. std::source_location is not usable with every compiler we lint with.
struct Where {
    const char* file;
    int line;
    static constexpr Where here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
        return {file, line};
    }
};

// Who meets an error: one process, or all of them, who agreed on it. The text of a shared one names by itself
// who failed.
enum class Scope : std::uint8_t { Local, Shared };

class Error : public std::runtime_error {
  public:
    Error(Exit code, const std::string& what, Where where, Scope scope = Scope::Local)
        : std::runtime_error(what), code_(code), where_(where), scope_(scope) {}
    [[nodiscard]] Exit code() const { return code_; }
    [[nodiscard]] Where where() const { return where_; }
    [[nodiscard]] Scope scope() const { return scope_; }

  private:
    Exit code_;
    Where where_;
    Scope scope_;
};

// Throws a local Error. Caught in main and at every thread's entry, where rank and host are put in front.
[[noreturn]] void fail(Exit code, const std::string& what, Where where = Where::here());

// fail(Exit::Internal, ...) unless `holds`: for states that only a defect of ours can cause.
constexpr void invariant(bool holds, const char* what, Where where = Where::here()) {
    if (!holds) fail(Exit::Internal, what, where);
}

}  // namespace trainctl
