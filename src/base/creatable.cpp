#include "base/creatable.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "trainctl/base/file_system.h"
#include "trainctl/base/io_error.h"

namespace trainctl {
namespace {

[[noreturn]] void refuse(const std::string& path, int cause) {
    const Error refused = io_error("create directory", path, cause, IoSide::Writing);
    const bool wrong_path = cause == ENOTDIR || cause == ENAMETOOLONG || cause == ELOOP;
    fail(wrong_path ? Exit::Usage : refused.code(), refused.what());
}

}  // namespace

void require_creatable_directory(const std::string& path) {
    struct ::stat status {};
    if (::stat(path.c_str(), &status) != 0 && errno == ENAMETOOLONG) refuse(path, errno);
    std::string existing = path.starts_with('/') ? "/" : ".";
    bool missing = false;
    for (std::size_t begin = 0; begin < path.size();) {
        const std::size_t end = std::min(path.find('/', begin), path.size());
        const std::string name = path.substr(begin, end - begin);
        begin = end + 1;
        if (name.empty()) continue;
        // Below a missing directory the kernel does not look at names; in the last one that is there it does.
        const std::string part = missing ? join_path(existing, name) : path.substr(0, end);
        if (::stat(part.c_str(), &status) != 0) {
            if (errno != ENOENT) refuse(path, errno);
            missing = true;
        } else if (!missing && !S_ISDIR(status.st_mode)) {
            refuse(part, ENOTDIR);
        } else if (!missing) {
            existing = part;
        }
    }
    if (::faccessat(AT_FDCWD, existing.c_str(), W_OK | X_OK, AT_EACCESS) != 0) refuse(path, errno);
}

}  // namespace trainctl
