// What `config check` can only know by looking at the machine: data, vocabulary, disk space, processors.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "trainctl/base/file_system.h"
#include "trainctl/config/load.h"

namespace trainctl {

// Never throws for what it finds. Data files that are not on this machine are Severity::Unchecked, and then,
// or if the job needs more ranks than this machine has processors, so is what is wrong with its directories
// and disk: the job is for another machine. Of a job with errors it checks what does not depend on the wrong
// keys.
std::vector<Problem> external_problems(FileSystem& files, const LoadedJob& job,
                                       std::optional<std::int64_t> ranks);

}  // namespace trainctl
