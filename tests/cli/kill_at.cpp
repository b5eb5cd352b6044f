// Loaded into the ranks of a training (LD_PRELOAD): kills some of them when one of them reaches a named
// point, a system call on a path. TRAINCTL_KILL_AT is
//
//     WHEN:CALL:NAME:COUNT:VICTIMS:FOLDER
//
// before|after the COUNT-th (in one process) CALL (mkdir, create, write, fsync, rename, unlink, rmdir) on a
// path whose last part begins with NAME (of a rename: the new name), kills rank VICTIMS (a number, or all).
// Every rank leaves its process id in FOLDER; `reached` there says that it happened. It happens once.
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>  // NOLINT(modernize-deprecated-headers): kill is not in <csignal>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

namespace {

struct Point {
    std::string when;
    std::string call;
    std::string name;
    int count = 0;
    std::string victims;
    std::string folder;
};

template <class Function>
Function real(const char* name) {
    return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

void leave_file(const std::string& path, const std::string& text) {
    static const auto real_open = real<int (*)(const char*, int, ...)>("open");
    static const auto real_write = real<ssize_t (*)(int, const void*, size_t)>("write");
    const int file = real_open(path.c_str(), O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0644);
    if (file < 0 || real_write(file, text.data(), text.size()) < 0) std::abort();
    ::close(file);
}

const Point* the_point() {
    static const Point* const point = []() -> const Point* {
        const char* const text = std::getenv("TRAINCTL_KILL_AT");
        const char* const rank = std::getenv("OMPI_COMM_WORLD_RANK");
        if (text == nullptr || rank == nullptr) return nullptr;
        auto* const read = new Point;  // for as long as the process lives
        std::istringstream parts(text);
        std::string count;
        std::getline(parts, read->when, ':');
        std::getline(parts, read->call, ':');
        std::getline(parts, read->name, ':');
        std::getline(parts, count, ':');
        std::getline(parts, read->victims, ':');
        std::getline(parts, read->folder);
        read->count = std::stoi(count);
        return read;
    }();
    return point;
}

void kill_rank(const Point& point, int rank) {
    std::FILE* const file = std::fopen((point.folder + "/rank." + std::to_string(rank)).c_str(), "re");
    int process = 0;
    if (file == nullptr || std::fscanf(file, "%d", &process) != 1) std::abort();
    std::fclose(file);
    ::kill(process, SIGKILL);
}

void strike(const Point& point) {
    leave_file(point.folder + "/reached", "");
    if (point.victims != "all") {
        kill_rank(point, std::stoi(point.victims));
        return;
    }
    const int ranks = std::atoi(std::getenv("OMPI_COMM_WORLD_SIZE"));
    for (int rank = 0; rank < ranks; ++rank) {
        if (std::to_string(rank) != std::getenv("OMPI_COMM_WORLD_RANK")) kill_rank(point, rank);
    }
    ::kill(::getpid(), SIGKILL);
}

void pass(const char* when, const char* call, const std::string& path) {
    static std::atomic<int> passed = 0;
    const Point* const point = the_point();
    if (point == nullptr || point->when != when || point->call != call) return;
    const std::size_t slash = path.rfind('/');
    if (path.compare(slash == std::string::npos ? 0 : slash + 1, point->name.size(), point->name) != 0)
        return;
    if (++passed == point->count && ::access((point->folder + "/reached").c_str(), F_OK) != 0) strike(*point);
}

std::string path_of(int file) {
    std::string path(4096, '\0');
    const ssize_t length =
        ::readlink(("/proc/self/fd/" + std::to_string(file)).c_str(), path.data(), path.size());
    path.resize(length < 0 ? 0 : static_cast<std::size_t>(length));
    return path;
}

template <class Work>
auto around(const char* call, const std::string& path, const Work& work) {
    pass("before", call, path);
    const auto result = work();
    pass("after", call, path);
    return result;
}

int open_file(const char* name, const char* path, int flags, mode_t mode) {
    const auto next = real<int (*)(const char*, int, ...)>(name);
    if ((flags & O_CREAT) == 0) return next(path, flags);
    return around("create", path, [&] { return next(path, flags, mode); });
}

[[gnu::constructor]] void say_who() {
    if (const Point* const point = the_point())
        leave_file(point->folder + "/rank." + std::getenv("OMPI_COMM_WORLD_RANK"),
                   std::to_string(::getpid()));
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;
    va_end(more);
    return open_file("open", path, flags, mode);
}
int open64(const char* path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;
    va_end(more);
    return open_file("open64", path, flags, mode);
}
int mkdir(const char* path, mode_t mode) noexcept {
    static const auto next = real<int (*)(const char*, mode_t)>("mkdir");
    return around("mkdir", path, [&] { return next(path, mode); });
}
int rename(const char* from, const char* to) noexcept {
    static const auto next = real<int (*)(const char*, const char*)>("rename");
    return around("rename", to, [&] { return next(from, to); });
}
int unlink(const char* path) noexcept {
    static const auto next = real<int (*)(const char*)>("unlink");
    return around("unlink", path, [&] { return next(path); });
}
int rmdir(const char* path) noexcept {
    static const auto next = real<int (*)(const char*)>("rmdir");
    return around("rmdir", path, [&] { return next(path); });
}
int fsync(int file) {
    static const auto next = real<int (*)(int)>("fsync");
    return around("fsync", path_of(file), [&] { return next(file); });
}
ssize_t write(int file, const void* bytes, size_t count) {
    static const auto next = real<ssize_t (*)(int, const void*, size_t)>("write");
    const Point* const point = the_point();
    if (point == nullptr || point->call != "write") return next(file, bytes, count);
    return around("write", path_of(file), [&] { return next(file, bytes, count); });
}
}
