// run.json: who this run is. Created once, by the holder of the lease, never changed.
#pragma once

#include <optional>
#include <string>

#include "trainctl/base/clock.h"
#include "trainctl/base/file_system.h"
#include "trainctl/rundir/layout.h"

namespace trainctl {

struct RunIdentity {
    std::string run_id;     // random UUID; checkpoints carry it, and foreign ones are never loaded or deleted
    std::string spec_hash;  // of the resolved job that created the run
    std::string created;    // UTC
};

// "3f2b0c1e-....": 122 random bits from the operating system.
std::string make_run_id();
// 64 random bits from the operating system (nonces).
std::uint64_t random_bits();

// nullopt: no run.json, or one torn by a crash while it was created (nothing else can have happened since:
// the caller checks the journal). Exit::BadInput: unreadable, or written by a newer format.
std::optional<RunIdentity> read_run_identity(FileSystem& files, const RunLayout& layout);

// Under the lease. Creates the directory as well. Exit::Usage if the run exists already.
RunIdentity create_run(FileSystem& files, Clock& clock, const RunLayout& layout,
                       const std::string& spec_hash);

}  // namespace trainctl
