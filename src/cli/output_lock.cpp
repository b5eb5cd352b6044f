#include "cli/output_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "trainctl/base/error.h"
#include "trainctl/base/io_error.h"

namespace trainctl {
namespace {

// Whether `descriptor` still is what `path` names: the owner before may have removed it meanwhile.
bool still_named(int descriptor, const std::string& path) {
    struct stat held {};
    struct stat named {};
    return fstat(descriptor, &held) == 0 && stat(path.c_str(), &named) == 0 && held.st_ino == named.st_ino &&
           held.st_dev == named.st_dev;
}

}  // namespace

OutputLock::OutputLock(const std::string& prefix) : path_(prefix + ".lock") {
    for (;;) {
        descriptor_ = open(path_.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666);
        if (descriptor_ < 0) fail_io("create", path_, errno, IoSide::Writing);
        if (flock(descriptor_, LOCK_EX | LOCK_NB) == 0) {
            if (still_named(descriptor_, path_)) return;
        } else if (errno == EWOULDBLOCK) {
            close(descriptor_);
            fail(Exit::Usage,
                 fmt::format("another `trainctl data prepare` is writing {} (it holds {}); wait for "
                             "it, end it, or choose another --output",
                             prefix, path_));
        } else if (errno != EINTR) {
            return;
        }
        close(descriptor_);
    }
}

OutputLock::~OutputLock() {
    unlink(path_.c_str());  // while it is still held: nobody can be between the two
    close(descriptor_);
}

}  // namespace trainctl
