#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/creatable.h"
#include "trainctl/base/file_system.h"
#include "trainctl/base/io_error.h"
#include "trainctl/base/text.h"

namespace trainctl {
namespace {

// Linux moves at most about 2 GiB per call; a smaller piece also keeps a signal's delay short.
constexpr std::size_t max_transfer_bytes = std::size_t{1} << 30U;

// Owns a descriptor. Every descriptor is O_CLOEXEC: mpirun, ssh and hooks must not inherit open run files.
class Descriptor {
  public:
    explicit Descriptor(int fd) : fd_(fd) {}
    ~Descriptor() {
        if (fd_ >= 0) ::close(fd_);
    }
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    [[nodiscard]] int get() const { return fd_; }
    int release() { return std::exchange(fd_, -1); }

  private:
    int fd_;
};

int open_retrying(const std::string& path, int flags) {
    int fd = -1;
    do {
        fd = ::open(path.c_str(), flags | O_CLOEXEC | O_NOCTTY, 0666);  // the user's umask decides
    } while (fd < 0 && errno == EINTR);
    return fd;
}

int sync_retrying(int fd) {
    int result = 0;
    do {
        result = ::fsync(fd);
    } while (result != 0 && errno == EINTR);
    return result;
}

class PosixFile final : public File {
  public:
    PosixFile(int fd, std::string path, IoSide side) : fd_(fd), path_(std::move(path)), side_(side) {}

    void read_at(std::uint64_t offset, std::span<std::byte> into) override {
        const std::size_t wanted = into.size();
        std::size_t filled = 0;
        while (filled < wanted) {
            const std::size_t got = read_some_at(offset + filled, into.subspan(filled));
            if (got == 0) {
                fail(Exit::BadInput,
                     fmt::format("cannot read {}: expected {} at offset {}, found the end of the file at {}; "
                                 "the file is truncated or not the one that was written",
                                 path_, counted(wanted, "byte"), offset, size()));
            }
            filled += got;
        }
    }

    std::size_t read_some_at(std::uint64_t offset, std::span<std::byte> into) override {
        while (true) {
            const ssize_t got = ::pread(fd_.get(), into.data(), std::min(into.size(), max_transfer_bytes),
                                        static_cast<off_t>(offset));
            if (got >= 0) return static_cast<std::size_t>(got);
            if (errno != EINTR) fail_io("read", path_, errno, IoSide::Reading);
        }
    }

    void write(std::span<const std::byte> bytes) override {
        while (!bytes.empty()) {
            const ssize_t put = ::write(fd_.get(), bytes.data(), std::min(bytes.size(), max_transfer_bytes));
            if (put < 0) {
                if (errno == EINTR) continue;
                fail_io("write", path_, errno, IoSide::Writing);
            }
            if (put == 0) fail_io("write", path_, ENOSPC, IoSide::Writing);
            bytes = bytes.subspan(static_cast<std::size_t>(put));
        }
    }

    void sync() override {
        if (sync_retrying(fd_.get()) != 0) fail_io("make durable (fsync)", path_, errno, IoSide::Writing);
    }

    void close() override {
        const int fd = fd_.release();
        invariant(fd >= 0, "File::close called twice");
        // Linux has released the descriptor even after EINTR; a second close could hit another thread's file.
        if (::close(fd) != 0 && errno != EINTR) fail_io("close", path_, errno, side_);
    }

    std::uint64_t size() override {
        struct ::stat status {};
        if (::fstat(fd_.get(), &status) != 0) fail_io("query the size of", path_, errno, side_);
        return static_cast<std::uint64_t>(status.st_size);
    }

  private:
    Descriptor fd_;
    std::string path_;
    IoSide side_;
};

class PosixFileSystem final : public FileSystem {
  public:
    std::unique_ptr<File> open(const std::string& path, Open mode) override {
        const auto open_as = [&](int flags, const char* operation, IoSide side) {
            Descriptor fd(open_retrying(path, flags));
            if (fd.get() < 0) fail_io(operation, path, errno, side);
            struct ::stat status {};
            if (::fstat(fd.get(), &status) != 0) fail_io(operation, path, errno, side);
            // Opening a directory for reading succeeds in the kernel and would only fail at the first read.
            if (S_ISDIR(status.st_mode)) fail_io(operation, path, EISDIR, side);
            if (side == IoSide::Reading && !S_ISREG(status.st_mode)) {
                fail(Exit::BadInput,
                     fmt::format("cannot read {}: expected a regular file, found a pipe, device or "
                                 "socket; write its contents to a file first",
                                 path));
            }
            return std::make_unique<PosixFile>(fd.release(), path, side);
        };
        switch (mode) {
            case Open::Read:
                // Without O_NONBLOCK the opening of a pipe that nobody writes to would wait for ever.
                return open_as(O_RDONLY | O_NONBLOCK, "open", IoSide::Reading);
            case Open::CreateNew:
                return open_as(O_WRONLY | O_CREAT | O_EXCL, "create", IoSide::Writing);
            case Open::Truncate:
                return open_as(O_WRONLY | O_CREAT | O_TRUNC, "create", IoSide::Writing);
            case Open::Append:
                return open_as(O_WRONLY | O_CREAT | O_APPEND, "append to", IoSide::Writing);
        }
        fail(Exit::Internal, "open: unknown mode");
    }

    std::optional<FileStatus> status(const std::string& path) override {
        struct ::stat status {};
        if (::stat(path.c_str(), &status) != 0) {
            if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
            fail_io("query", path, errno, IoSide::Reading);
        }
        return FileStatus{static_cast<std::uint64_t>(status.st_size), S_ISDIR(status.st_mode),
                          static_cast<std::int64_t>(status.st_mtime)};
    }

    std::vector<std::string> list(const std::string& directory) override {
        const auto close_stream = [](DIR* stream) { ::closedir(stream); };
        const std::unique_ptr<DIR, decltype(close_stream)> stream(::opendir(directory.c_str()), close_stream);
        if (stream == nullptr) fail_io("list", directory, errno, IoSide::Reading);
        std::vector<std::string> names;
        while (true) {
            errno = 0;  // the only way to tell the end from an error
            // Not thread-safe only where threads share a stream; this one is ours.
            // NOLINTNEXTLINE(concurrency-mt-unsafe)
            const dirent* entry = ::readdir(stream.get());
            if (entry == nullptr) {
                if (errno != 0) fail_io("list", directory, errno, IoSide::Reading);
                break;
            }
            std::string name = entry->d_name;
            if (name != "." && name != "..") names.push_back(std::move(name));
        }
        std::sort(names.begin(), names.end());
        return names;
    }

    void make_directories(const std::string& path) override {
        for (std::size_t end = 0; end != std::string::npos;) {
            end = path.find('/', end + 1);
            const std::string part = path.substr(0, end);
            if (part.empty() || ::mkdir(part.c_str(), 0777) == 0) continue;
            // The error depends on the file system (EEXIST, EROFS, EACCES on a parent that is already there),
            // and another rank may have made it in between: what counts is whether a directory is there now.
            const int cause = errno;
            const std::optional<FileStatus> found = status(part);
            if (!found || !found->directory) {
                fail_io("create directory", part, found ? ENOTDIR : cause, IoSide::Writing);
            }
        }
    }

    void require_creatable(const std::string& path) override { require_creatable_directory(path); }

    void rename(const std::string& from, const std::string& to) override {
        if (::rename(from.c_str(), to.c_str()) != 0) {
            fail_io("rename", fmt::format("{} to {}", from, to), errno, IoSide::Writing);
        }
    }

    void remove_file(const std::string& path) override {
        if (::unlink(path.c_str()) != 0 && errno != ENOENT) fail_io("remove", path, errno, IoSide::Writing);
    }

    void remove_directory(const std::string& path) override {
        if (::rmdir(path.c_str()) != 0 && errno != ENOENT) {
            fail_io("remove directory", path, errno, IoSide::Writing);
        }
    }

    void sync_directory(const std::string& path) override {
        const Descriptor fd(open_retrying(path, O_RDONLY | O_DIRECTORY));
        if (fd.get() < 0) fail_io("open directory", path, errno, IoSide::Writing);
        if (sync_retrying(fd.get()) != 0)
            fail_io("make durable (fsync) directory", path, errno, IoSide::Writing);
    }

    SpaceStatus space(const std::string& path) override {
        struct ::statvfs status {};
        int result = 0;
        do {
            result = ::statvfs(path.c_str(), &status);
        } while (result != 0 && errno == EINTR);
        if (result != 0) fail_io("query the free space of", path, errno, IoSide::Reading);
        const std::uint64_t unit = status.f_frsize;
        return {status.f_bavail * unit, status.f_blocks * unit, status.f_favail};
    }
};

}  // namespace

std::unique_ptr<FileSystem> make_posix_file_system() { return std::make_unique<PosixFileSystem>(); }

}  // namespace trainctl
