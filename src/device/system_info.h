// What /proc and the cgroup say about this machine and this process's share of it.
#pragma once

#include <cstdint>
#include <string>

namespace trainctl {

std::string processor_name();  // "AMD EPYC 9654 96-Core Processor"; "unknown" if the kernel does not say
std::uint64_t usable_memory_bytes();  // physical memory, or the cgroup's limit if that is lower
double cgroup_cpu_quota();            // processors' worth of time this cgroup may use; 0: no limit
std::string read_kernel_text(
    const std::string& path);  // "" if absent; for files whose size stat() does not know

}  // namespace trainctl
