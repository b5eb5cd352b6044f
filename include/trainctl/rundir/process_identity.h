// Which process, exactly: process ids are reused, hosts restart, containers have their own ids.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "trainctl/base/file_system.h"

namespace trainctl {

struct ProcessIdentity {
    std::string host;
    std::string boot_id;        // new at every boot of the kernel
    std::string pid_namespace;  // process ids mean nothing in another one
    std::int64_t pid = 0;
    std::int64_t start_ticks = 0;  // since boot; tells a reused pid

    bool operator==(const ProcessIdentity& other) const = default;
};

enum class Liveness {
    Dead,     // same boot and namespace, and that process is gone
    Alive,    // same boot and namespace, and it exists (it may hang)
    Unknown,  // another host, boot or container
};

// A dependency so that tests can kill and hang owners without processes.
class ProcessTable {
  public:
    virtual ~ProcessTable() = default;
    virtual ProcessIdentity self() = 0;
    virtual Liveness look(const ProcessIdentity& process) = 0;
};

// Reads /proc through `files` (which must outlive it).
std::unique_ptr<ProcessTable> make_linux_process_table(FileSystem& files);

}  // namespace trainctl
