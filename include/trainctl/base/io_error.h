// Turns a failed system call into the project's Error: one text form and one mapping to exit codes for every
// implementation of FileSystem (and for other callers of the kernel, e.g. sockets and processes).
#pragma once

#include <string>
#include <string_view>

#include "trainctl/base/error.h"

namespace trainctl {

enum class IoSide {
    Reading,  // what we were given: missing or unreadable input is Exit::BadInput
    Writing,  // what we produce: full, read-only or refused is Exit::Resource
};

// "cannot <operation> <path>: <errno text> (<errno name>): <what to do next>". Lack of memory or of file
// descriptors (ENOMEM, EMFILE, ENFILE) is Exit::Resource on both sides.
Error io_error(std::string_view operation, std::string_view path, int error_number, IoSide side,
               Where where = Where::here());

// throw io_error(...)
[[noreturn]] void fail_io(std::string_view operation, std::string_view path, int error_number, IoSide side,
                          Where where = Where::here());

// Whether an error of io_error() is ESTALE: a network file system has ended the handle, and a fresh open may
// find what is there now.
bool is_stale_handle(const Error& error);

}  // namespace trainctl
