#include "trainctl/base/io_error.h"

#include <fmt/format.h>
#include <string.h>  // NOLINT(modernize-deprecated-headers): strerrordesc_np is not in <cstring>

#include <cerrno>

namespace trainctl {
namespace {

std::string_view next_step(int error_number, IoSide side) {
    switch (error_number) {
        case ENOENT:
            return side == IoSide::Reading ? "check the path" : "create the parent directory first";
        case ENOTDIR:
            return "a part of the path is a file where a directory is needed; check the path";
        case EISDIR:
            return "it is a directory where a file is needed; check the path";
        case EEXIST:
            return "it exists already; remove it or choose another name";
        case EACCES:
        case EPERM:
            return "check owner and permissions of the path and of its parent directories";
        case ENOSPC:
            return "free space or inodes on this file system, or choose a directory on another one";
        case EDQUOT:
            return "your disk quota is used up; free space or ask for more";
        case EROFS:
            return "the file system is mounted read-only; choose another directory or remount it";
        case EFBIG:
            return "the file size limit (ulimit -f) or the file system's maximum is reached";
        case ENAMETOOLONG:
            return "use a shorter path";
        case ELOOP:
            return "the path has too many symbolic links";
        case ENOTEMPTY:
            return "the directory is not empty";
        case EMFILE:
        case ENFILE:
            return "raise the limit of open files (ulimit -n)";
        case ENOMEM:
            return "the machine is out of memory";
        case ESTALE:
            return "the network file system replaced or removed it; check that no other job writes there";
        case EIO:
            return "the storage device or server reports a fault; see the kernel log (dmesg)";
        case EXDEV:
            return "source and target must be on the same file system";
        case EINVAL:
        case EOPNOTSUPP:
            return "the file system does not support this; choose a directory on another one";
        case ETIMEDOUT:
            return "the storage server does not answer; check mount and network";
        default:
            return "check the path and the file system";
    }
}

Exit exit_code(int error_number, IoSide side) {
    switch (error_number) {
        case ENOMEM:
        case EMFILE:
        case ENFILE:
            return Exit::Resource;
        default:
            return side == IoSide::Reading ? Exit::BadInput : Exit::Resource;
    }
}

}  // namespace

Error io_error(std::string_view operation, std::string_view path, int error_number, IoSide side,
               Where where) {
    const char* text = strerrordesc_np(error_number);  // unlike strerror: thread-safe, not localised
    const char* name = strerrorname_np(error_number);
    return {
        exit_code(error_number, side),
        fmt::format("cannot {} {}: {} ({}): {}", operation, path, text != nullptr ? text : "unknown error",
                    name != nullptr ? std::string(name) : std::to_string(error_number),
                    next_step(error_number, side)),
        where};
}

void fail_io(std::string_view operation, std::string_view path, int error_number, IoSide side, Where where) {
    throw io_error(operation, path, error_number, side, where);
}

bool is_stale_handle(const Error& error) {
    return std::string_view(error.what()).find("(ESTALE)") != std::string_view::npos;
}

}  // namespace trainctl
