// A failure on its way from one thread to others. Copies of an exception object share hidden state between
// threads; this holds the parts, and every thread throws an Error of its own.
#pragma once

#include <exception>
#include <memory>
#include <string>

#include "trainctl/base/error.h"

namespace trainctl {

class CapturedError {
  public:
    explicit CapturedError(const Error& error)
        : code_(error.code()), what_(error.what()), where_(error.where()) {}

    // Inside a catch block. Other exceptions than Error become Exit::Internal (no memory: Exit::Resource).
    static std::shared_ptr<const CapturedError> current();

    [[noreturn]] void raise() const { throw Error(code_, what_, where_); }
    [[nodiscard]] Error error() const { return {code_, what_, where_}; }

  private:
    Exit code_;
    std::string what_;
    Where where_;
};

}  // namespace trainctl
