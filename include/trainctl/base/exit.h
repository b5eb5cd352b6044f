// Process exit codes: the contract between trainctl, mpirun, schedulers and the supervisor.
#pragma once

#include <cstdint>
#include <string_view>

namespace trainctl {

enum class Exit : std::uint8_t {
    Ok = 0,
    Internal = 1,     // a defect of ours
    Usage = 2,        // command line, job file, contradictory keys, a refused mode, an existing run
    Interrupted = 3,  // stopped on request: saved, or before the first step
    BadInput = 4,     // data, checkpoint or token file missing, unreadable, corrupt, mismatching
    Resource = 5,     // memory, disk full or read-only, no such device, too few cores
    Peer = 6,         // another rank, the network or the launcher failed; retry elsewhere
    Diverged = 7,     // the training itself failed (non-finite beyond the allowed number)
    Fenced = 8,       // the run directory is owned by another
};

// Stable lower-case name, for example "bad_input"; used in --json errors and in help pages.
std::string_view exit_name(Exit code);

}  // namespace trainctl
