// Result<T>: a value, or the Error that prevented it, for callers that have a next move.
#pragma once

#include <utility>
#include <variant>

#include "trainctl/base/error.h"

namespace trainctl {

template <class T>
class [[nodiscard]] Result {
  public:
    // Implicit on purpose: a function returns either a T or an Error as it stands.
    // NOLINTNEXTLINE(google-explicit-constructor)
    Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
    // NOLINTNEXTLINE(google-explicit-constructor)
    Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

    [[nodiscard]] bool ok() const { return state_.index() == 0; }
    explicit operator bool() const { return ok(); }

    // Precondition: !ok().
    [[nodiscard]] const Error& error() const { return std::get<1>(state_); }

    // The value; throws the stored Error if there is none.
    T& value() & {
        if (!ok()) throw error();
        return std::get<0>(state_);
    }
    [[nodiscard]] const T& value() const& {
        if (!ok()) throw error();
        return std::get<0>(state_);
    }
    T&& value() && {
        if (!ok()) throw error();
        return std::get<0>(std::move(state_));
    }

  private:
    std::variant<T, Error> state_;
};

}  // namespace trainctl
