#include "trainctl/rundir/process_identity.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <optional>
#include <sstream>

#include "trainctl/base/error.h"

namespace trainctl {
namespace {

struct ProcessState {
    char state = '?';
    std::int64_t start_ticks = 0;
};

// Fields 3 and 22 of /proc/<pid>/stat. The name in field 2 may hold spaces and parentheses: count from the
// last ')'.
std::optional<ProcessState> process_state(FileSystem& files, std::int64_t pid) {
    std::string text;
    try {
        text = read_text(files, fmt::format("/proc/{}/stat", pid), 1U << 16U);
    } catch (const Error&) {
        return std::nullopt;
    }
    const std::size_t name_end = text.rfind(')');
    if (name_end == std::string::npos) return std::nullopt;
    std::istringstream fields(text.substr(name_end + 1));
    ProcessState found;
    fields >> found.state;
    std::string skipped;
    for (int field = 4; field < 22; ++field) fields >> skipped;
    if (!(fields >> found.start_ticks)) return std::nullopt;
    return found;
}

class LinuxProcessTable final : public ProcessTable {
  public:
    explicit LinuxProcessTable(FileSystem& files) : files_(files) {}

    ProcessIdentity self() override {
        ProcessIdentity me;
        std::array<char, 256> name{};
        if (::gethostname(name.data(), name.size() - 1) == 0) me.host = name.data();
        me.boot_id = read_text(files_, "/proc/sys/kernel/random/boot_id", 4096);
        while (!me.boot_id.empty() && me.boot_id.back() == '\n') me.boot_id.pop_back();
        std::array<char, 256> link{};
        const ssize_t length = ::readlink("/proc/self/ns/pid", link.data(), link.size() - 1);
        if (length > 0) me.pid_namespace.assign(link.data(), static_cast<std::size_t>(length));
        me.pid = ::getpid();
        const auto state = process_state(files_, me.pid);
        if (!state) fail(Exit::Resource, "cannot read /proc/self/stat: /proc must be mounted");
        me.start_ticks = state->start_ticks;
        return me;
    }

    Liveness look(const ProcessIdentity& process) override {
        const ProcessIdentity me = self();
        if (process.boot_id != me.boot_id || process.pid_namespace != me.pid_namespace)
            return Liveness::Unknown;
        const auto state = process_state(files_, process.pid);
        const bool gone = !state || state->start_ticks != process.start_ticks || state->state == 'Z' ||
                          state->state == 'X';  // a zombie only waits for its parent to notice
        return gone ? Liveness::Dead : Liveness::Alive;
    }

  private:
    FileSystem& files_;
};

}  // namespace

std::unique_ptr<ProcessTable> make_linux_process_table(FileSystem& files) {
    return std::make_unique<LinuxProcessTable>(files);
}

}  // namespace trainctl
