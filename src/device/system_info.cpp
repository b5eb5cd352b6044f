#include "device/system_info.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <span>
#include <sstream>
#include <vector>

#include "trainctl/base/error.h"
#include "trainctl/base/file_system.h"

namespace trainctl {
namespace {

std::optional<std::uint64_t> first_number(const std::string& text) {
    std::uint64_t value = 0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
    if (result.ec != std::errc()) return std::nullopt;  // also "max"
    return value;
}

// The directories of this process's cgroup and its ancestors, for version 2 ("0::/a/b") or one version 1
// controller ("4:memory:/a/b"). Inside a container the path may be relative to a root we cannot see: the
// mount point itself is always the last candidate.
std::vector<std::string> cgroup_directories(const std::string& controller) {
    std::vector<std::string> directories;
    std::istringstream lines(read_kernel_text("/proc/self/cgroup"));
    for (std::string line; std::getline(lines, line);) {
        const auto first = line.find(':');
        const auto second = line.find(':', first + 1);
        if (first == std::string::npos || second == std::string::npos) continue;
        const std::string names = "," + line.substr(first + 1, second - first - 1) + ",";
        const bool version_2 = names == ",,";
        if (!version_2 && names.find("," + controller + ",") == std::string::npos) continue;
        const std::string mount = version_2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/" + controller;
        std::string path = line.substr(second + 1);
        while (path.size() > 1) {
            directories.push_back(mount + path);
            path.resize(path.rfind('/'));
        }
        directories.push_back(mount);
    }
    return directories;
}

}  // namespace

std::string read_kernel_text(const std::string& path) {
    try {
        const auto files = make_posix_file_system();
        const auto file = files->open(path, Open::Read);
        std::string text;
        std::array<std::byte, 4096> block{};
        while (const std::size_t count = file->read_some_at(text.size(), block)) {
            text.append(reinterpret_cast<const char*>(block.data()), count);
        }
        return text;
    } catch (const Error&) {
        return "";  // another kernel or a restricted container: the caller has a default
    }
}

std::string processor_name() {
    std::istringstream lines(read_kernel_text("/proc/cpuinfo"));
    for (std::string line; std::getline(lines, line);) {
        if (line.rfind("model name", 0) != 0) continue;
        const auto colon = line.find(": ");
        if (colon != std::string::npos) return line.substr(colon + 2);
    }
    return "unknown";
}

std::uint64_t usable_memory_bytes() {
    std::uint64_t bytes = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                          static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    for (const std::string& directory : cgroup_directories("memory")) {
        for (const char* name : {"/memory.max", "/memory.limit_in_bytes"}) {
            if (const auto limit = first_number(read_kernel_text(directory + name)))
                bytes = std::min(bytes, *limit);
        }
    }
    return bytes;
}

double cgroup_cpu_quota() {
    double quota = 0.0;
    const auto add_limit = [&](double limit) { quota = quota == 0.0 ? limit : std::min(quota, limit); };
    for (const std::string& directory : cgroup_directories("cpu")) {
        const std::string both = read_kernel_text(directory + "/cpu.max");  // "200000 100000" or "max 100000"
        const auto space = both.find(' ');
        if (space != std::string::npos) {
            const auto time = first_number(both);
            const auto period = first_number(both.substr(space + 1));
            if (time && period && *period > 0)
                add_limit(static_cast<double>(*time) / static_cast<double>(*period));
        }
        const auto time = first_number(read_kernel_text(directory + "/cpu.cfs_quota_us"));  // "-1": no limit
        const auto period = first_number(read_kernel_text(directory + "/cpu.cfs_period_us"));
        if (time && period && *period > 0)
            add_limit(static_cast<double>(*time) / static_cast<double>(*period));
    }
    return quota;
}

}  // namespace trainctl
