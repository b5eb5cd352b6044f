// Whether the directories that a job writes to can be made on this machine.
#pragma once

#include <string>
#include <vector>

#include "trainctl/base/exit.h"
#include "trainctl/base/file_system.h"
#include "trainctl/config/job_spec.h"

namespace trainctl {

struct UnusablePlace {
    std::string key;   // that named it
    std::string what;  // begins with the key
    Exit exit;         // Usage: the path is wrong; Resource: the system refuses
};

// At most one per key. Creates nothing, never throws for what it finds.
std::vector<UnusablePlace> unusable_places(FileSystem& files, const JobSpec& job);

}  // namespace trainctl
