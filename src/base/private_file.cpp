#include "trainctl/base/private_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "trainctl/base/error.h"
#include "trainctl/base/io_error.h"

namespace trainctl {
namespace {

class PrivateDescriptor {
  public:
    explicit PrivateDescriptor(const std::string& path)
        : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW | O_NONBLOCK)) {}
    ~PrivateDescriptor() {
        if (fd_ >= 0) ::close(fd_);
    }
    PrivateDescriptor(const PrivateDescriptor&) = delete;
    PrivateDescriptor& operator=(const PrivateDescriptor&) = delete;
    [[nodiscard]] int get() const { return fd_; }

  private:
    int fd_;
};

}  // namespace

std::string read_private_text(const std::string& path, std::uint64_t limit_bytes) {
    const PrivateDescriptor fd(path);
    if (fd.get() < 0 && errno == ELOOP) {
        fail(
            Exit::Usage,
            fmt::format("{} is a symbolic link; name the file itself, so that nobody can exchange it", path));
    }
    if (fd.get() < 0)
        throw Error(Exit::Usage, io_error("open", path, errno, IoSide::Reading).what(), Where::here());
    struct ::stat status {};
    if (::fstat(fd.get(), &status) != 0) fail_io("query", path, errno, IoSide::Reading);
    if (!S_ISREG(status.st_mode)) fail(Exit::Usage, path + ": expected a regular file with credentials");
    if (status.st_uid != ::geteuid()) {
        fail(Exit::Usage,
             fmt::format("{} belongs to user {}, expected {}, who runs this; give each user a file "
                         "of their own",
                         path, status.st_uid, ::geteuid()));
    }
    if ((status.st_mode & 077U) != 0) {
        fail(Exit::Usage, fmt::format("{} may be read or changed by others (mode {:04o}, expected 0600); "
                                      "chmod 600 it, and renew the secret if others use this machine",
                                      path, status.st_mode & 07777U));
    }
    std::string text(limit_bytes + 1, '\0');
    std::size_t filled = 0;
    while (filled < text.size()) {
        const ssize_t got = ::read(fd.get(), text.data() + filled, text.size() - filled);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) fail_io("read", path, errno, IoSide::Reading);
        if (got == 0) break;
        filled += static_cast<std::size_t>(got);
    }
    if (filled > limit_bytes) {
        fail(Exit::Usage,
             fmt::format("{} is larger than {} bytes; is it the right file?", path, limit_bytes));
    }
    text.resize(filled);
    return text;
}

}  // namespace trainctl
